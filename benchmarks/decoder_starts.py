"""Compare ways to start the decoders of PaSeR and DenoSent, so that they help the encoder sooner.

    python benchmarks/decoder_starts.py paser --starts fresh copied gated --rates 5e-5 1e-3 --seeds 0
    python benchmarks/decoder_starts.py denosent --rates 5e-5 1e-3 --updates 400

The encoder is ``minilm-mlm`` with mean pooling, the text is the short sentences, and STS-B dev selects the
checkpoint. Each training appends a line to ``results/decoder_starts.jsonl``, unless it is there already.
"""

from __future__ import annotations

import tempfile
from typing import Any

import records
import testbeds
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import TrainerCallback, set_seed

from sbert_plugins import data, evaluation, losses
from sbert_plugins.modules import decoding
from sbert_plugins.training import SentenceTransformerTrainer, TrainingArguments

ENCODER_RATE = 5e-5
STARTS = ("fresh", "copied", "gated", "copied and gated", "detached")
INFORMED = 0.3  # nats of information after which a detached encoder joins


def main() -> None:
    """Run the trainings that are asked for and not recorded yet."""
    defaults = {"starts": ["fresh"], "rates": [ENCODER_RATE, 1e-3], "seeds": [0], "updates": 60}
    parser = records.parser(__doc__, {"starts": STARTS}, **defaults)
    parser.add_argument("method", choices=["paser", "denosent"])
    options = parser.parse_args()
    records.require_clean_tree()
    cells = [
        {
            "method": options.method,
            "start": start,
            "learning_rate": rate,
            "updates": options.updates,
            "seed": seed,
        }
        for seed in options.seeds
        for start in options.starts
        for rate in options.rates
    ]
    decoding.PROBE_EVERY = 5  # a short training has few batches to probe
    for cell in cells:
        if not records.holds("decoder_starts", cell):
            cell |= train(**cell)
            records.append("decoder_starts", cell)
            print(cell, flush=True)


def train(method: str, start: str, learning_rate: float, updates: int, seed: int) -> dict[str, Any]:
    """Train once; return STS-B dev, the seven STS tasks and the information at the end."""
    set_seed(seed)
    model, sentences = testbeds.encoder("minilm-mlm"), testbeds.text("short", 20_000)
    if method == "paser":
        is_copied = start.startswith("copied")
        sizes = {"decoder_heads": 12, "decoder_feedforward": 1536} if is_copied else {}
        loss: Any = losses.PaSeRLoss(model, **sizes)
        if is_copied:
            copy_layers(loss.decoder, model)
        synonyms = data.synonyms_if_installed()
        rows = data.paser_columns(sentences, mask_token="[MASK]", top_k=3, seed=seed, synonyms=synonyms)
        gated: list[nn.Module] = [layer.multihead_attn for layer in loss.decoder.layers.layers]
    else:
        if start.startswith("copied"):
            raise SystemExit("DenoSent's decoder has more layers than the encoder: there is nothing to copy.")
        loss, rows = losses.DenoSentLoss(model), sentences
        gated = [layer.memory_out for layer in loss.decoder.layers]
    if start.endswith("gated"):
        loss.gates = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in gated)
        for module, gate in zip(gated, loss.gates, strict=True):
            module.register_forward_hook(
                lambda _, args, out, gate=gate: (
                    (out[0] * gate, *out[1:]) if isinstance(out, tuple) else out * gate
                )
            )
    dev = testbeds.InBfloat16(
        evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="stsb_dev", write_csv=False)
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=updates,
            learning_rate=ENCODER_RATE,
            learning_rate_mapping={r"^(decoder|gates)\.": learning_rate},
            per_device_train_batch_size=64,
            bf16=True,
            use_cpu=not torch.cuda.is_available(),
            eval_strategy="steps",
            eval_steps=updates // 4,
            save_steps=updates // 4,
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=dev.primary_metric,
            logging_steps=1,
            seed=seed,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=rows, loss=loss, evaluator=dev
        )
        if start == "detached":
            trainer.add_callback(Detach(loss))
        trainer.train()
    log = trainer.state.log_history
    known = [entry["information"] for entry in log if "information" in entry]
    found = evaluation.evaluate(testbeds.in_bfloat16(model), [evaluation.STSSuiteEvaluator(name="Sts")])
    return {
        "stsb_dev": round(
            max(entry["eval_stsb_dev_spearman"] for entry in log if "eval_stsb_dev_spearman" in entry), 2
        ),
        "seven_tasks": round(found["Sts"]["avg7"], 2),
        "information": round(sum(known[-3:]) / max(1, len(known[-3:])), 3),
    }


@torch.no_grad()
def copy_layers(decoder: Any, model: SentenceTransformer) -> None:
    """Copy self-attention, feed-forward layers and positions of a BERT encoder to PaSeR's decoder."""
    bert: Any = model[0].auto_model
    for ours, theirs in zip(decoder.layers.layers, bert.encoder.layer, strict=True):
        attention = theirs.attention
        maps = attention.self.query, attention.self.key, attention.self.value
        ours.self_attn.in_proj_weight.copy_(torch.cat([one.weight for one in maps]))
        ours.self_attn.in_proj_bias.copy_(torch.cat([one.bias for one in maps]))
        pairs = [
            (ours.self_attn.out_proj, attention.output.dense),
            (ours.norm1, attention.output.LayerNorm),
            (ours.linear1, theirs.intermediate.dense),
            (ours.linear2, theirs.output.dense),
            (ours.norm3, theirs.output.LayerNorm),
        ]
        for target, source in pairs:
            target.load_state_dict(source.state_dict())
    table, length = bert.embeddings, len(decoder.positions.weight)
    decoder.positions.weight.copy_(
        table.position_embeddings.weight[:length] + table.token_type_embeddings.weight[0]
    )
    decoder.norm.load_state_dict(table.LayerNorm.state_dict())


class Detach(TrainerCallback):
    """Trains the decoder alone until it reads its memory."""

    def __init__(self, loss: Any) -> None:
        self.loss, self.joined, self.compute = loss, False, loss.decoder.loss
        loss.decoder.loss = self.compute_detached

    def compute_detached(self, memory: Tensor, *args: Any, **keywords: Any) -> Any:
        """Compute the decoder's loss; its gradient reaches the encoder only after it has joined."""
        return self.compute(memory if self.joined else memory.detach(), *args, **keywords)

    def on_step_end(self, *args: Any, **keywords: Any) -> None:
        """Let the encoder join once the decoder reads its memory."""
        self.joined = self.joined or float(self.loss.diagnostics.get("information", 0.0)) > INFORMED


if __name__ == "__main__":
    main()
