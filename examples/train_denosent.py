"""Train DenoSent on sentences, without labels.

The settings are not the paper's: they are chosen to run offline in about a minute on two CPU cores. The paper's are in
``sbert_plugins.recipes`` and one command away: ``sbert-plugins train denosent --output runs/denosent``. A decoder learns to
restore sentences after thousands of steps; this script makes fifteen.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from transformers import set_seed

from sbert_plugins import data, losses, modules, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/denosent-example"
SENTENCES = 480  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
TEMPLATE = "[X] means [MASK]."  # the paper's; without a template the encoder's own pooling is trained
NOISE_DROPOUT = 0.825  # the paper's continuous noise
DECODER_LAYERS = 2  # the paper's 16 learn from more text
TEMPERATURE = 0.03  # the paper's
BATCH_SIZE = 32  # the official script's 64 gives fewer updates
LEARNING_RATE = 2e-4  # the paper's 5e-5 is for thousands of updates
DECODER_LEARNING_RATE = 1e-3  # decoder and head start from random weights and have fifteen steps
MAX_SEQ_LENGTH = 32  # the paper's
SEED = 42

# Four layers of MiniLM, which needs no network; it has never met a template, and embeds by its mask poorly at first.
# Online: recipes.build_encoder("bert-base-uncased", pooling="mask", ...).
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
modules.apply_mask_template(model, TEMPLATE)
sentences = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)["anchor"][:]


def swap_clauses(texts: list[str]) -> list[str]:
    """Stand in for a translation and back, which needs two models: what follows the comma comes first."""
    return [", ".join(reversed(text.rstrip(".").split(", ", 1))) + "." for text in texts]


# Online, without the two callables: English to Chinese and back, by the paper's models. Without paraphrases at all, on a
# dataset of one column, two dropout views of a sentence take their place, which costs the paper 1.3 points.
train_dataset = data.back_translate(sentences, forward=swap_clauses, backward=lambda texts: texts)
set_seed(SEED)  # the decoder's first weights are drawn here, before the trainer sets its seed
# MiniLM was published without its language model's head; bert-base-uncased has one, which is then found by itself.
loss = losses.DenoSentLoss(
    model,
    noise_dropout=NOISE_DROPOUT,
    decoder_layers=DECODER_LAYERS,
    temperature=TEMPERATURE,
    mlm_head="fresh",
)

# Pairs graded for this project; online: evaluation.load_sts("STS-B dev", hub=True).
evaluator = EmbeddingSimilarityEvaluator(*recipes.graded_pairs(), name="graded", main_similarity="cosine")
before = evaluator(model)["graded_spearman_cosine"]

trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir=OUTPUT,
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        learning_rate_mapping={r"^(decoder|head)\.": DECODER_LEARNING_RATE},
        logging_steps=5,  # prints contrastive, denoising, and of the diagnostics the share of tokens that are right
        save_strategy="no",
        report_to="none",
        seed=SEED,
    ),
    train_dataset=train_dataset,
    loss=loss,
)
trainer.train()
after = evaluator(model)["graded_spearman_cosine"]

model.save_pretrained(f"{OUTPUT}/model")
print(f"Graded pairs, Spearman x 100: {100 * before:.2f} before, {100 * after:.2f} after. Model: {OUTPUT}/model")
