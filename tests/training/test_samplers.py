from datasets import Dataset, Value
from encoders import project_text
from trainings import trainer_of

from sbert_plugins import losses
from sbert_plugins.training import LengthGroupedBatchSampler


def sampler(**changes):
    dataset = Dataset.from_dict({"anchor": project_text(), "id": list(range(1281))})
    return LengthGroupedBatchSampler(dataset, **({"batch_size": 32, "drop_last": False, "seed": 5} | changes))


def test_each_row_is_in_one_batch_of_each_epoch():
    batches = sampler()
    first = list(batches)
    assert sorted(i for batch in first for i in batch) == list(range(1281))
    assert [len(batch) for batch in first] == [32] * 40 + [1]
    assert [len(batch) for batch in sampler(drop_last=True)] == [32] * 40
    batches.set_epoch(1)
    assert list(batches) != first
    batches.set_epoch(0)
    assert list(batches) == first


def test_batches_are_of_similar_length_and_in_random_order():
    lengths = [len(sentence) for sentence in project_text()]
    longest = [max(lengths[i] for i in batch) for batch in sampler()]
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in sampler())
    assert padded / sum(lengths) < 1.2  # 2.0 in random batches of 32
    assert longest != sorted(longest, reverse=True)


def test_the_trainer_takes_the_class(tiny_encoder, tmp_path):
    model = tiny_encoder()
    trainer = trainer_of(
        model, losses.ArcCSELoss(model), tmp_path, batch_sampler=LengthGroupedBatchSampler, max_steps=2
    )
    trainer.train()
    assert isinstance(trainer.get_train_dataloader().batch_sampler, LengthGroupedBatchSampler)


def test_a_row_is_as_long_as_its_longest_text():
    rows = Dataset.from_dict({"anchor": ["a", "aaa", None], "positive": ["bbbb", "b", "bb"]})
    assert LengthGroupedBatchSampler(rows, 2, False).lengths == [4, 3, 2]
    renamed = rows.cast_column("anchor", Value("large_string")).with_transform(
        lambda rows: {"text": rows["anchor"]}
    )
    assert LengthGroupedBatchSampler(renamed, 2, False).lengths == [4, 3, 2]
