"""The attacker, who has all campaigns: campaigns_*.py, by what they lie about.

A new kind of attack is a method `run_...` in one of those, where the tests and the command line find it.
"""

from .campaigns_bytes import ByteCampaigns
from .campaigns_feedback import FeedbackCampaigns
from .campaigns_names import NameCampaigns


class Attacker(ByteCampaigns, FeedbackCampaigns, NameCampaigns):
    """Campaigns against a target. Each is an endless stream of shots; the same seed makes the same ones."""
