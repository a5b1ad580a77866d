"""Proposals by a language model behind any OpenAI-compatible endpoint, or by an outside agent through files."""

from .briefs import write_brief
from .folder import write_verdicts
from .proposer import ModelProposer, make_files_proposer, make_llm_proposer
from .question import ModelError
from .record import NotRecorded

__all__ = [
    "ModelError",
    "ModelProposer",
    "NotRecorded",
    "make_files_proposer",
    "make_llm_proposer",
    "write_brief",
    "write_verdicts",
]
