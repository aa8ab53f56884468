"""Training arguments."""

from dataclasses import dataclass, field, fields

from sentence_transformers import SentenceTransformerTrainingArguments


@dataclass
class TrainingArguments(SentenceTransformerTrainingArguments):
    """The training arguments of sentence-transformers, and the radius of Sharpness-Aware Minimization.

    Args:
        sam_rho: Radius of Sharpness-Aware Minimization (Foret et al., 2021), 0.05 in its paper. Each update
            then costs two forward and two backward passes. 0 switches it off. ``PTBERTLoss`` cannot be
            trained with it.

    Raises:
        ValueError: If ``sam_rho`` is negative or is combined with ``fp16``.

    Example:
        >>> from sbert_plugins.training import TrainingArguments
        >>> arguments = TrainingArguments(output_dir="output", sam_rho=0.05)
    """

    sam_rho: float = field(
        default=0.0,
        metadata={"help": "radius of Sharpness-Aware Minimization; 0 switches it off, its paper uses 0.05"},
    )

    def __post_init__(self) -> None:
        """Check the radius."""
        super().__post_init__()
        if not self.sam_rho >= 0:
            raise ValueError(f"sam_rho must be 0 or greater, got {self.sam_rho}.")
        if self.sam_rho and self.fp16:
            raise ValueError(
                "sam_rho does not work with fp16=True, whose gradient scaler expects one pass. Use bf16=True."
            )


# Fields that the trainer does not obey, and why.
_REFUSED = dict.fromkeys(
    (
        "batch_eval_metrics",
        "dataloader_multiprocessing_context",
        "deepspeed",
        "fsdp",
        "include_for_metrics",
        "include_num_input_tokens_seen",
        "label_names",
        "label_smoothing_factor",
        "length_column_name",
        "neftune_noise_alpha",
        "optim_args",
        "optim_target_modules",
        "use_cache",
        "use_liger_kernel",
    ),
    "would have no effect: leave it out",
) | {
    "dataloader_persistent_workers": "would draw other random numbers when it is resumed: leave it out",
    "resume_from_checkpoint": "would have no effect: pass it to train()",
    "train_sampling_strategy": "would have no effect: set batch_sampler",
}


def raise_if_ignored(arguments: SentenceTransformerTrainingArguments) -> None:
    """Raise ``ValueError`` for a training argument that is set and would not be obeyed."""
    for one in fields(arguments):
        value = getattr(arguments, one.name)
        # Other optimizers have options.
        is_obeyed = one.name.startswith("optim_") and not arguments.optim.startswith(("adamw_torch", "adaf"))
        if (
            one.name in _REFUSED
            and not is_obeyed
            and value not in (one.default, None, False, "", "no", [], {})
        ):
            raise ValueError(f"The training argument {one.name}={value!r} {_REFUSED[one.name]}.")
