"""Train DenoSent on sentences, without labels.

The settings are chosen to run offline on two CPU cores. The paper's training is one command away:
``sbert-plugins train denosent --protocol paper --output runs/denosent``.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import data, losses, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/denosent-example"
SENTENCES = 480  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
BATCH_SIZE = 32  # the official script's 64 gives fewer updates
LEARNING_RATE = 5e-5  # the paper's
MAX_SEQ_LENGTH = 32  # the paper's
SEED = 42

# Four layers of MiniLM, which needs no network. Online: recipes.build_encoder("bert-base-uncased", pooling="mean").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
sentences = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)["anchor"][:]


def swap_clauses(texts: list[str]) -> list[str]:
    """Stand in for a translation and back, which needs two models: what follows the comma comes first."""
    return [", ".join(reversed(text.rstrip(".").split(", ", 1))) + "." for text in texts]


# Online, without the two callables: English to Chinese and back, by the paper's models. Without paraphrases at all, on a
# dataset of one column, two dropout views of a sentence take their place, which costs the paper 1.3 points.
train_dataset = data.back_translate(sentences, forward=swap_clauses, backward=lambda texts: texts)
# The paper also has a template around each sentence: modules.apply_mask_template(model), before this line.
loss = losses.DenoSentLoss(model)

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
        logging_steps=5,  # prints contrastive, denoising, and of the diagnostics what the second reads and may do
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
