"""The attacker, which has all campaigns of the modules campaigns_*.py. Each module lies about one subject.

To add an attack, write a method `run_...` in one of these modules. The tests and the command line find it there.
"""

from .campaigns_bytes import ByteCampaigns
from .campaigns_feedback import FeedbackCampaigns
from .campaigns_names import NameCampaigns


class Attacker(ByteCampaigns, FeedbackCampaigns, NameCampaigns):
    """All campaigns against a target. Each is an endless stream of shots that depends only on the seed."""
