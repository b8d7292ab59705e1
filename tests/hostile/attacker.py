"""The attacker: all campaigns of the modules campaigns_*.py, which are sorted by what they lie about.

A new kind of attack is a method `run_...` in one of these modules. The tests and the command line find it there.
"""

from .campaigns_bytes import ByteCampaigns
from .campaigns_feedback import FeedbackCampaigns
from .campaigns_names import NameCampaigns


class Attacker(ByteCampaigns, FeedbackCampaigns, NameCampaigns):
    """Campaigns against a target. Each is an endless stream of shots, which depends only on the seed."""
