"""Train PaSeR on sentences, without labels.

The settings are chosen to run offline in about a minute on two CPU cores. The paper's are one command away:
``sbert-plugins train paser --protocol paper --output runs/paser``. With ``decoder_layers=0`` the loss predicts the words of
the phrase, which learns from few updates; the paper's six-layer decoder needs thousands.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import data, losses, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/paser-example"
SENTENCES = 640  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
TOP_K = 2  # phrases per sentence; the default is 3
SYNONYMS = None  # the authors' 0.5 needs WordNet: nltk.download("wordnet")
BATCH_SIZE = 32  # the paper searches {32, 64, 96}
LEARNING_RATE = 5e-5  # the paper's 3e-5 is for five epochs of up to 147,550 phrases
MAX_SEQ_LENGTH = 32  # the paper's
SEED = 42

# Four layers of MiniLM, which needs no network. Online: recipes.build_encoder("bert-base-uncased", pooling="cls").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
sentences = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
train_dataset = data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, top_k=TOP_K, synonyms=SYNONYMS, seed=SEED)
# The paper's loss is losses.PaSeRLoss(model) with bert-base-uncased, which has a pretrained language-model head.
loss = losses.PaSeRLoss(model, decoder_layers=0, token_weights=1e-6, mlm_weight=0.0, mlm_head="embeddings")

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
        logging_steps=10,  # prints generative, and of the diagnostics the share of phrase tokens that are right
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
