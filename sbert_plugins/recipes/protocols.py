"""The papers' trainings and those of their authors' code, value by value, each beside its source.

Where a paper is silent the value is its authors' code's, and where this is unknown too, ours.
"""

from __future__ import annotations

from typing import Any

from sbert_plugins.recipes.protocol import Protocol, Row, protocol

STS_SENTENCES = "sts-sentences"
WIKIPEDIA = "sentence-transformers/wiki1m-for-simcse"

_Values = dict[str, tuple[Any, str]]

# What no paper says; a protocol that knows better has it in another part. The order is that of the printed table.
_ALL: _Values = {
    "printed": (None, "paper"),
    "encoder": ("bert-base-uncased", "paper: BERT-base; silent on case"),
    "text": (WIKIPEDIA, "paper"),
    "sentences": (1_000_000, "paper"),
    "learning_rate": (3e-5, "paper"),
    "batch_size": (64, "paper"),
    "gradient_accumulation_steps": (1, "silent: ours"),
    "epochs": (1, "paper"),
    "max_steps": (-1, "silent: ours, by epochs"),
    "learning_rate_schedule": ("linear", "silent: ours"),
    "learning_rate_warmup": (0.0, "silent: ours"),
    "weight_decay": (0.0, "silent: ours"),
    "gradient norm at most": (1.0, "silent: ours"),
    "group_by_length": (False, "silent: ours"),
    "sam_rho": (None, "silent: ours"),
    "loss_learning_rate": (None, "silent: ours, the encoder's"),
    "bf16": (None, "silent: ours, where the GPU has it"),
    "dropout": (None, "silent: ours, the encoder's own"),
    "pooling": ("cls", "paper"),
    "pooling at test": ("cls", "paper"),
    "max_seq_length": (32, "paper"),
    "length at test": ("the encoder's own", "silent: ours"),
    "selected by": ("STS-B dev", "paper"),
    "eval_steps": (125, "paper"),
    "patience": (None, "silent: ours"),
    "seed": (42, "silent: ours"),
}

_PASER: _Values = {
    "printed": (76.16, "paper Table 1, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper 4.2: BERT-base; the case is the code's"),
    "text": (STS_SENTENCES, "paper 4.2: all unlabelled texts of the seven STS data sets"),
    "sentences": (29_510, "silent: ours, each sentence once; with repetitions 62,198, with unscored pairs 89,192"),
    "columns.extractor": ("rake", "paper 4.5.3"),
    "columns.top_k": (
        5,
        "paper Table 5, whose row of 5 is that of Tables 4, 8 and 9; read as a row each, not all hidden at once",
    ),
    "columns.synonyms": (0.5, "paper 4.5.2; the share is in the code's README"),
    "learning_rate": (3e-5, "paper 4.2"),
    "batch_size": (64, "paper 4.2: of 32, 64 and 96; 64 is the code's"),
    "gradient_accumulation_steps": (1, "code"),
    "epochs": (5, "paper 4.5.1"),
    "max_steps": (-1, "paper 4.5.1, by epochs"),
    "learning_rate_schedule": ("linear", "code"),
    "learning_rate_warmup": (0.0, "code"),
    "weight_decay": (0.0, "code"),
    "gradient norm at most": (1.0, "code"),
    "loss_learning_rate": (None, "code: the encoder's"),
    "bf16": (False, "code: float32"),
    "pooling": ("cls", "paper 4.2"),
    "pooling at test": ("cls", "paper 4.2"),
    "max_seq_length": (32, "paper 4.2"),
    "length at test": ("the encoder's own", "code"),
    "selected by": ("STS-B dev", "paper 4.2"),
    "eval_steps": (125, "code"),
}
_PASER_LOSS: _Values = {
    "loss.decoder_layers": (6, "paper 4.2"),
    "loss.mlm_head": ("pretrained", "code"),
    "loss.token_weights": (None, "paper eq. 3: every token counts alike"),
    "loss.difference_scale": (10.0, "paper appendix A, Table 8"),
    "loss.product_scale": (10.0, "paper appendix A, Table 8"),
    "loss.signed": (False, "paper eq. 2; the code is signed"),
    "loss.normalize_memory": (False, "paper eq. 2"),
    "loss.decoder_heads": (16, "code"),
    "loss.decoder_dropout": (0.1, "code; on attention and activations it has none"),
}
_PASER_MLM: _Values = {
    "loss.decoder_feedforward": (None, "code: 768, the encoder's width"),
    "loss.mlm_weight": (1.0, "paper eq. 4"),
    "loss.mlm_probability": (0.15, "code"),
    "projection of the masked copy": (False, "paper eq. 2; the code has one"),
}
_PASER_SUPERVISED: _Values = {
    "printed": (82.61, "paper Table 2, average of the seven STS tasks"),
    "encoder": (None, "paper 3.3: the best checkpoint of unsupervised PaSeR; name it with --model"),
    "text": ("sentence-transformers/all-nli", "paper 4.2: SNLI and MNLI"),
    "sentences": (557_850, "silent: ours, the Hub's triplets"),
    "columns.extractor": ("rake", "paper 4.5.3"),
    "columns.top_k": (1, "silent: ours, the contrast reads each triplet once"),
    "columns.synonyms": (None, "silent: ours, the contrast reads the anchor too"),
    "epochs": (3, "silent: ours, of SimCSE's supervised runs"),
    "max_steps": (-1, "silent: ours, by epochs"),
    "loss.alpha": (0.1, "silent: ours; paper eq. 5: searched"),
    "loss.temperature": (0.05, "silent: ours, SimCSE's"),
}

_DENOSENT: _Values = {
    "printed": (79.33, "paper Table 1, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper, Implementation Details"),
    "text": (WIKIPEDIA, "paper, Implementation Details: SimCSE's"),
    "sentences": (1_000_000, "paper, Implementation Details: SimCSE's"),
    "positives": (
        "back-translation",
        "paper, Implementation Details: to Chinese and back; --limit 320000 is what 5,000 updates read",
    ),
    "template": ("[X] means [MASK].", "paper, Implementation Details"),
    "learning_rate": (5e-5, "paper, Implementation Details"),
    "batch_size": (64, "code"),
    "epochs": (1, "code: less, see max_steps"),
    "max_steps": (5000, "code"),
    "learning_rate_schedule": ("constant", "code"),
    "learning_rate_warmup": (500, "code"),
    "bf16": (False, "code: float32"),
    "pooling": ("mask", "paper, Implementation Details"),
    "pooling at test": ("mask", "paper, Implementation Details"),
    "max_seq_length": (32, "paper, Implementation Details; the template comes on top"),
    "selected by": ("STS-B dev", "paper, Implementation Details; the code: mean of STS-B dev and SICK-R dev"),
    "eval_steps": (50, "code"),
}
_DENOSENT_LOSS: _Values = {
    "loss.decoder_layers": (16, "paper, Implementation Details"),
    "loss.decoder_heads": (1, "paper, Ablation Study"),
    "loss.decoder_feedforward": (2048, "code"),
    "loss.decoder_dropout": (0.1, "code"),
    "loss.noise_dropout": (0.825, "paper, Implementation Details"),
    "loss.token_weights": (None, "paper eq. 4: every token counts alike"),
    "loss.balance": (None, "paper eq. 6"),
    "loss.contrastive_weight": (1.0, "paper eq. 6; the code 5"),
    "loss.denoising_weight": (1.0, "paper eq. 6; the code 7"),
    "loss.temperature": (0.03, "paper, Implementation Details; the code .05"),
    "loss.reconstruct": (
        "anchor",
        "paper: the original is restored; the code restores the paraphrase",
    ),
    "loss.projector": (True, "code; no word of it in the paper"),
    "loss.mlm_head": ("pretrained", "code"),
}

_PT_BERT: _Values = {
    "printed": (77.74, "paper Table 3, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper 3.2: as BERT-base-uncased"),
    "text": (WIKIPEDIA, "paper 4.1"),
    "sentences": (1_000_000, "paper 4.1"),
    "learning_rate": (3e-5, "code"),
    "batch_size": (64, "paper 4.2"),
    "epochs": (1, "code; paper 4.1: SimCSE's settings"),
    "max_steps": (-1, "code, by epochs"),
    "bf16": (None, "code: half precision; bfloat16 here, where the GPU has it"),
    "dropout": (None, "paper 4.2: BERT's own"),
    "pooling": ("cls", "code, with an MLP in training only"),
    "pooling at test": ("cls", "code, without the MLP"),
    "max_seq_length": (64, "code"),
    "selected by": ("STS-B dev", "paper 4.3"),
    "eval_steps": (125, "paper 4.1"),
    "loss.temperature": (0.05, "code"),
    "loss.momentum": (0.885, "code; the number is lost in the paper's text"),
    "loss.num_pseudo_tokens": (128, "paper 5.1, Table 5"),
    "loss.queue_size": (256, "paper 4.2"),
    "loss.attend_to": ("tokens", "paper 3.2: to the core part of the sentence; the code: the pooled vector"),
    "negatives": (255, "paper 4.2; the code 319"),
    "loss.projection_head": (True, "code"),
    "loss.momentum_dropout": (True, "code"),
}

_ARCCSE: _Values = {
    "printed": (78.11, "paper Table 1, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper 4.1: BERT-base; silent on case"),
    "text": (WIKIPEDIA, "paper 4.1"),
    "sentences": (1_000_000, "paper 4.1"),
    "learning_rate": (3e-5, "paper 4.1; 1e-5 for large models"),
    "batch_size": (32, "paper 4.1: of 8, 16 and 32"),
    "gradient_accumulation_steps": (2, "paper 4.1: updates 'every 64 steps', read as 64 sentences"),
    "epochs": (1, "paper 4.1"),
    "max_steps": (-1, "paper 4.1, by epochs"),
    "group_by_length": (True, "paper 4.1"),
    "sam_rho": (0.05, "paper 4.1: SAM, default configurations"),
    "dropout": (None, "paper 4.1: 0.1, BERT's own"),
    "pooling": ("cls", "paper 4.1, with an MLP in training only"),
    "pooling at test": ("cls", "paper 4.1, without the MLP"),
    "max_seq_length": (None, "paper 4.1: the batch's longest; 32 for ArcCon in large models"),
    "selected by": ("STS-B dev", "paper 4.1"),
    "eval_steps": (125, "paper 4.1"),
    "loss.margin_degrees": (10.0, "paper 4.1"),
    "loss.temperature": (0.05, "paper 4.1"),
    "loss.triplet_weight": (0.1, "paper 4.1"),
    "loss.triplet_margin": (0.0, "paper 3.2"),
    "loss.near_mask_ratio": (0.2, "paper 4.1"),
    "loss.far_mask_ratio": (0.4, "paper 4.1"),
    "loss.min_words": (25, "paper 4.1"),
    "loss.projection_head": (True, "paper 4.1"),
}

_SLT_FAI: _Values = {
    "batch_size": (32, "paper 4.1"),
    "bf16": (None, "code: half precision; bfloat16 here, where the GPU has it"),
    "pooling": ("mean", "paper eq. 1"),
    "pooling at test": ("mean", "paper eq. 1"),
}
_SLT_FAI_LOSS: _Values = {
    "loss.adversarial_weight": (1.0, "paper 4.1"),
    "loss.filtering_weight": (1.0, "paper 4.1"),
    "loss.reversal_strength": (1.0, "paper 3.2"),
    "loss.low_frequency_by": ("types", "paper 3.5: words sorted by frequency"),
    "loss.low_frequency_share": (0.5, "paper 4.1"),
    "loss.masking_ratio": (0.2, "paper 4.1"),
    "loss.balance": (None, "paper eq. 2"),
}
_SLT_FAI_SIMCSE: _Values = {
    "printed": (76.18, "paper Table 1, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper 3.5, 4.1"),
    "text": (WIKIPEDIA, "paper 4.1"),
    "sentences": (1_000_000, "paper 4.1"),
    "learning_rate": (3e-5, "paper 4.1: SimCSE's"),
    "epochs": (1, "paper 4.1: SimCSE's"),
    "max_steps": (-1, "paper 4.1: SimCSE's, by epochs"),
    "max_seq_length": (32, "paper 4.1: SimCSE's"),
    "selected by": ("STS-B dev", "paper 4.1: SimCSE's"),
    "eval_steps": (125, "paper 4.1: SimCSE's"),
    "loss.backbone": ("simcse", "paper 4.1"),
    "projection head": (False, "silent: ours, left out; SimCSE's settings have one in training, and pool by [CLS]"),
    "loss.temperature": (0.05, "paper 4.1: SimCSE's"),
    "loss.warmup_steps": (0.1, "paper 4.1: 0.1 of the one epoch, without the two terms"),
}
_SLT_FAI_CONSERT: _Values = {
    "printed": (73.29, "paper Table 1, average of the seven STS tasks"),
    "encoder": ("bert-base-uncased", "paper 3.5, 4.1"),
    "text": (STS_SENTENCES, "paper 4.1"),
    "sentences": (
        29_510,
        "silent: ours, each sentence once; the paper's 89,192 hold repetitions, and unscored pairs of STS15 and 16",
    ),
    "learning_rate": (5e-7, "code"),
    "epochs": (10, "code, of 89,192 sentences: see max_steps"),
    "max_steps": (27_880, "paper 4.1 and code: 10 epochs of 89,192 sentences in batches of 32"),
    "learning_rate_schedule": ("linear", "code"),
    "learning_rate_warmup": (0.1, "code"),
    "weight_decay": (0.01, "code"),
    "dropout": (0.0, "code"),
    "max_seq_length": (64, "code"),
    "selected by": ("STS-B dev", "paper 4.1: ConSERT's"),
    "eval_steps": (200, "code"),
    "patience": (10, "code"),
    "pooling at test": ("mean", "code: of the last layer, and of the last two; which is printed could not be told"),
    "loss.backbone": ("consert", "paper 4.1"),
    "loss.temperature": (0.1, "paper 4.1: ConSERT's"),
    "loss.warmup_steps": (0.05, "paper 4.1: 0.5 of 10 epochs, without the two terms"),
}

_PASER_CODE: _Values = {
    "printed": (
        75.9,
        "paper Table 8, row m = n = 1, the script's, average of the seven STS tasks; Table 1's 76.16 is of 10 and 10",
    ),
    "text": (STS_SENTENCES, "paper 4.2; the code's own file is not published"),
    "columns.top_k": (5, "paper Table 5, as above; the code's own file is not published"),
    "columns.synonyms": (0.5, "code: its README"),
    "learning_rate": (3e-5, "code"),
    "batch_size": (64, "code"),
    "epochs": (5, "code"),
    "max_steps": (-1, "code, by epochs"),
    "pooling": ("cls", "code"),
    "pooling at test": ("cls", "code"),
    "max_seq_length": (32, "code"),
    "selected by": ("STS-B dev", "code"),
    "loss.official": (True, "code: losses.official.PaSeRLoss"),
    "loss.decoder_layers": (6, "code"),
    "loss.token_weights": (None, "code: every token counts alike"),
    "loss.difference_scale": (1.0, "code; the paper 10"),
    "loss.product_scale": (1.0, "code; the paper 10"),
    "loss.signed": (True, "code; paper eq. 2: absolute values"),
    "loss.normalize_memory": (False, "code"),
    "loss.mlm_head": ("pretrained", "code"),
    "loss.decoder_feedforward": (None, "code: 768, the encoder's width"),
    "loss.decoder_heads": (16, "code"),
    "loss.decoder_dropout": (0.1, "code, but for attention and activations, which are without"),
    "loss.mlm_weight": (1.0, "code"),
    "loss.mlm_probability": (0.15, "code"),
    "projection of the masked copy": (True, "code"),
}
_DENOSENT_CODE: _Values = {
    "printed": (79.56, "code: its README, of the released model, average of the seven STS tasks; paper Table 1: 79.33"),
    "template": ('"[X]" means [MASK].', "code"),
    "learning_rate": (4e-5, "code; the paper 5e-5"),
    "pooling": ("mask", "code"),
    "pooling at test": ("mask", "code"),
    "loss.official": (True, "code: losses.official.DenoSentLoss"),
    "loss.decoder_layers": (16, "code"),
    "loss.decoder_heads": (1, "code"),
    "loss.decoder_feedforward": (2048, "code"),
    "loss.decoder_dropout": (0.1, "code"),
    "loss.noise_dropout": (0.8425, "code: .825 of what the encoder's dropout of .1 leaves"),
    "loss.token_weights": (None, "code: every token counts alike"),
    "loss.balance": (None, "code"),
    "loss.contrastive_weight": (5.0, "code; the paper 1"),
    "loss.denoising_weight": (7.0, "code; the paper 1"),
    "loss.temperature": (0.05, "code; the paper .03"),
    "loss.reconstruct": ("paraphrase", "code; the paper: the original"),
    "loss.projector": (True, "code"),
    "loss.mlm_head": ("pretrained", "code"),
}
_PT_BERT_CODE: _Values = {
    "batch_size": (64, "code"),
    "epochs": (1, "code"),
    "max_steps": (-1, "code, by epochs"),
    "eval_steps": (125, "code"),
    "negatives": (319, "code; the paper 255"),
    "loss.official": (True, "code: losses.official.PTBERTLoss"),
    "loss.temperature": (0.05, "code"),
    "loss.momentum": (0.885, "code"),
    "loss.num_pseudo_tokens": (128, "code"),
    "loss.queue_size": (256, "code"),
    "loss.attend_to": ("pooled", "code; paper 3.2: the sentence"),
    "loss.projection_head": (True, "code"),
    "loss.momentum_dropout": (True, "code"),
}
_SLT_FAI_CODE: _Values = {
    "batch_size": (32, "code"),
    "pooling": ("mean", "code"),
    "loss.backbone": ("consert", "code, which has no other"),
    "loss.official": (True, "code: losses.official.SLTFAILoss"),
    "loss.temperature": (0.1, "code"),
    "loss.warmup_steps": (0.05, "code: the first half of every epoch; here once"),
    "loss.adversarial_weight": (1 / 0.3, "code: 1, beside a sum of two directions times .15; the paper 1"),
    "loss.filtering_weight": (1 / 0.3, "code: 1, beside a sum of two directions times .15; the paper 1"),
    "loss.reversal_strength": (1.0, "code"),
    "loss.low_frequency_by": ("types", "code"),
    "loss.low_frequency_share": (0.5, "code"),
    "loss.masking_ratio": (0.5, "code: of frequent tokens; the paper .2 of rare ones"),
    "loss.balance": (None, "code"),
}

PROTOCOLS: dict[tuple[str, str], Protocol] = {
    (one.method, one.name): one
    for one in (
        protocol("paser", "paper", _ALL, _PASER, _PASER_LOSS, _PASER_MLM),
        protocol("paser-supervised", "paper", _ALL, _PASER, _PASER_SUPERVISED, _PASER_LOSS),
        protocol("denosent", "paper", _ALL, _DENOSENT, _DENOSENT_LOSS),
        protocol("pt-bert", "paper", _ALL, _PT_BERT),
        protocol("arccse", "paper", _ALL, _ARCCSE),
        protocol("slt-fai", "paper", _ALL, _SLT_FAI, _SLT_FAI_SIMCSE, _SLT_FAI_LOSS),
        protocol("slt-fai", "paper-consert", _ALL, _SLT_FAI, _SLT_FAI_CONSERT, _SLT_FAI_LOSS),
        protocol("paser", "official", _ALL, _PASER, _PASER_CODE),
        protocol("denosent", "official", _ALL, _DENOSENT, _DENOSENT_CODE),
        protocol("pt-bert", "official", _ALL, {key: _PT_BERT[key] for key in _PT_BERT if key[:5] != "loss."}, _PT_BERT_CODE),
        protocol("slt-fai", "official", _ALL, _SLT_FAI, _SLT_FAI_CONSERT, _SLT_FAI_CODE),
    )
}


def protocol_of(method: str, name: str) -> Protocol:
    """Return a protocol by its method and name.

    Raises:
        ValueError: If there is none, with those that there are.
    """
    if (method, name) not in PROTOCOLS:
        names = [other for known, other in PROTOCOLS if known == method]
        others = ", ".join(dict.fromkeys(known for known, _ in PROTOCOLS))
        raise ValueError(
            f"protocol of {method} must be one of {', '.join(names)}, got {name!r}."
            if names
            else f"{method} has no protocol, got {name!r}: there are some of {others}."
        )
    return PROTOCOLS[method, name]


def protocol_table(method: str, name: str) -> list[Row]:
    """Return a protocol as rows ``(setting, value, source)``.

    Example:
        >>> protocol_table("arccse", "paper")[0]
        Row(setting='printed', value=78.11, source='paper Table 1, average of the seven STS tasks')

    Raises:
        ValueError: If there is none, with those that there are.
    """
    return list(protocol_of(method, name).rows)
