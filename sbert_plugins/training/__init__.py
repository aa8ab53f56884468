"""Training of losses that own weights or state, whatever their method."""

from .arguments import TrainingArguments
from .loss_state import LossStateCallback, load_loss_state, newest_complete_checkpoint, save_loss_state
from .samplers import LengthGroupedBatchSampler
from .trainer import DivergedError, SentenceTransformerTrainer

__all__ = [
    "DivergedError",
    "LengthGroupedBatchSampler",
    "LossStateCallback",
    "SentenceTransformerTrainer",
    "TrainingArguments",
    "load_loss_state",
    "newest_complete_checkpoint",
    "save_loss_state",
]
