import pytest

from sbert_plugins import recipes, training
from sbert_plugins.recipes.recipe import LENGTH_GROUPED

PROTOCOLS = [(method, name) for method, names in recipes.protocol_names().items() for name in names]


@pytest.mark.parametrize(("method", "name"), PROTOCOLS)
class TestEveryProtocol:
    def test_has_a_source_for_each_value(self, method, name):
        plan = recipes.read_protocol(method, name)
        assert all(setting.source for setting in plan.settings)
        assert {"encoder", "text", "pooling", "max_seq_length"} <= {*plan.section("start")}
        assert plan.section("about")["reported"] > 70

    def test_has_arguments_that_the_trainer_takes(self, method, name, tmp_path):
        arguments = recipes.read_protocol(method, name).section("arguments")
        assert arguments.pop("batch_sampler", LENGTH_GROUPED) == LENGTH_GROUPED
        training.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **arguments)
        assert {"max_steps", "num_train_epochs"} & {*arguments}

    def test_has_keywords_that_loss_and_columns_take(self, method, name):
        plan = recipes.read_protocol(method, name)
        recipes.RECIPES[method].check_keywords(plan.section("loss"), plan.section("columns"))


def test_values_are_those_of_the_papers():
    paser = recipes.read_protocol("paser", "paper")
    assert paser.section("about")["reported"] == 76.16
    assert paser.section("loss")["token_weights"] is None
    assert paser.section("arguments")["num_train_epochs"] == 5
    assert "less" in paser.section("about")["expected"]  # as eq. 2 is printed
    assert recipes.read_protocol("denosent", "paper").section("loss")["decoder_layers"] == 16
    official = recipes.read_protocol("slt-fai", "official")
    assert official.section("arguments")["learning_rate"] == 5e-7
    assert official.section("start")["dropout"] == 0.0


def test_a_method_without_protocols():
    with pytest.raises(ValueError, match="none"):
        recipes.read_protocol("simcse", "paper")
