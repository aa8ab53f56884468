"""Training arguments."""

from dataclasses import dataclass, field

from sentence_transformers import SentenceTransformerTrainingArguments


@dataclass
class TrainingArguments(SentenceTransformerTrainingArguments):
    """Arguments of sentence-transformers, with Sharpness-Aware Minimization."""

    sam_rho: float = field(default=0.0, metadata={"help": "radius of Sharpness-Aware Minimization; 0 leaves it out"})
