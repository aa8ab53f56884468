"""Methods in sentence-transformers' trainer and ``fit``, and round encoders that compute in other ways."""

import pytest
import torch
from methods import EVERY
from sentence_transformers import (
    InputExample,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from tools import state
from torch.utils.data import DataLoader
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sbert_plugins.losses import official


@pytest.fixture
def parts(method, tiny_encoder):
    build, dataset = EVERY[method]
    model = tiny_encoder()
    return model, build(model), dataset(20)


def assert_trained(loss, before):
    """Encoder and loss-owned weights have moved and are finite."""
    moved = {name for name, parameter in loss.named_parameters() if not torch.equal(parameter, before[name])}
    assert all(torch.isfinite(parameter).all() for parameter in loss.parameters())
    assert any(name.startswith("model.") for name in moved)
    # A frozen copy has parts that the encoder does not train either (BERT's pooler).
    own = {name for name, parameter in loss.named_parameters() if parameter.requires_grad}
    idle = {name for name in own - moved if not name.startswith("model.")}
    # A softmax over one key has no gradient.
    assert idle <= ({"mapping.attention.pseudo_tokens"} if isinstance(loss, official.PTBERTLoss) else set())


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_trainer(parts, tmp_path):
    # It logs each term, and the card of the model has citation and settings.
    model, loss, dataset = parts
    before = state(loss)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, eval_dataset=dataset, loss=loss
    )
    trainer.train()
    assert_trained(loss, before)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    terms = set(loss([model.preprocess(dataset[:4][column]) for column in dataset.column_names]))
    assert len(logs) == 6  # batches of 8, 8 and 4
    for entry in logs:
        assert terms <= set(entry)
        assert entry["loss"] == pytest.approx(sum(entry[term] for term in terms), abs=2e-4)
    assert {f"eval_{term}" for term in terms} <= set().union(*trainer.state.log_history)
    model.save_pretrained(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"loss:{type(loss).__name__}" in card
    assert loss.citation.strip().splitlines()[0] in card
    assert [setting for setting in loss.get_config_dict() if f'"{setting}"' not in card] == []
    assert len(card) < 60_000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["arccse", "denosent with paraphrases", "paser", "slt-fai", "pt-bert"])
def test_legacy_fit(parts, tmp_path):
    model, loss, dataset = parts
    before = state(loss)
    examples = [InputExample(texts=list(row.values())) for row in dataset]
    model.fit(
        [(DataLoader(examples, batch_size=8, shuffle=True), loss)],
        epochs=1,
        optimizer_params={"lr": 1e-3},
        warmup_steps=0,
        show_progress_bar=False,
        checkpoint_path=str(tmp_path),
    )
    assert_trained(loss, before)


def like_flash(module, query, key, value, mask, **keywords):
    """Attention that takes what flash attention takes, as transformers hands it on."""
    if query.dtype == torch.float32 and torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    if query.dtype == torch.float32:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    return sdpa_attention_forward(module, query, key, value, mask, **keywords)


@pytest.mark.parametrize("method", ["pt-bert", "slt-fai consert", "official pt-bert", "self-distillation"])
def test_flash_attention(method, tiny_encoder, monkeypatch):
    # A momentum copy and a trial pass run outside the forward that the trainer computes in bfloat16.
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "like_flash", like_flash)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS, "like_flash", sdpa_mask)
    model = tiny_encoder().train()
    model.transformers_model.config._attn_implementation = "like_flash"
    build, dataset = EVERY[method]
    loss, rows = build(model), dataset(8)
    columns = [model.preprocess(rows[column]) for column in rows.column_names]
    with pytest.raises(RuntimeError, match="only support fp16 and bf16"):
        model(dict(columns[0]))
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    assert torch.isfinite(sum(loss(columns).values()))


@pytest.mark.parametrize("name", ["arccse", "denosent", "pt-bert", "balanced sum"])
def test_a_model_as_it_is_loaded_makes_no_two_equal_views(name, tiny_encoder):
    build, dataset = EVERY[name]
    model = tiny_encoder().eval()
    model.training = True  # as SentenceTransformer says, whatever is inside
    with pytest.raises(ValueError, match=r"call model.train\(\) before the training"):
        build(model)([model.preprocess(dataset(8)["anchor"][:])])


@pytest.mark.skipif(
    torch.__version__ < (2, 7), reason="torch 2.6 compiles no encoder of transformers, whatever is round it"
)
@pytest.mark.parametrize("name", ["pt-bert", "balanced sum", "paser"])
def test_round_a_compiled_model(name, tiny_encoder):
    build, dataset = EVERY[name]
    model = tiny_encoder().train()
    loss = build(torch.compile(model, backend="eager"))
    columns = [model.preprocess(list(column)) for column in dataset(8)[:].values()]
    sum(loss(columns).values()).backward()
    assert any(one.grad is not None and one.grad.abs().max() > 0 for one in model.parameters())
