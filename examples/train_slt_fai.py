"""Train SLT-FAI round SimCSE on sentences, without labels.

The settings are chosen to run offline in about a minute on two CPU cores. The paper's are one command away:
``sbert-plugins train slt-fai --protocol paper --output runs/slt-fai``.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import set_seed

from sbert_plugins import data, losses, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/slt-fai-example"
SENTENCES = 640  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
TEMPERATURE = 0.05  # SimCSE's
BATCH_SIZE = 32  # the paper's
LEARNING_RATE = 3e-5  # SimCSE's
MAX_SEQ_LENGTH = 32  # SimCSE's
SEED = 42

# Four layers of MiniLM, which needs no network. Online: SentenceTransformer("bert-base-uncased").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
train_dataset = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
set_seed(SEED)  # the discriminators' first weights are drawn here, before the trainer sets its seed

# SimCSE: each sentence and itself (the column stands twice) in two dropout views. losses.ConSERTLoss(model) would do as well.
ranking = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
simcse = losses.WeightedSumLoss(model, {"simcse": (ranking, 1.0, [0, 0])})
# The counts of BookCorpus for BERT's vocabulary, which MiniLM has. For another one:
# data.TokenFrequencies.from_corpus(train_dataset["anchor"], model.tokenizer)
loss = losses.SLTFAILoss(model, simcse, frequencies=data.TokenFrequencies.bookcorpus())

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
        logging_steps=5,  # prints base/simcse, adversarial, filtering and how well the discriminators do
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
