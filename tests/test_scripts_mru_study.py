"""The study of MRU: how rates are searched, what of a run is kept, and when a claim holds."""

import json
import math
import statistics

import numpy as np
import pytest

from configs import mru_study as config
from scripts import mru_report, mru_study
from scripts.cells import scored
from scripts.mru_study import Job, Run
from training.config import from_config_dict, to_plain
from training.errors import ConfigError, PreemptedError
from training.results import score

pytestmark = pytest.mark.usefixtures("compiled_once")
SEEDS = ("0", "1", "2")
POSITIONS = list(np.linspace(3, 2, 16))


def record(model, losses, spikes=(0.0, 0.0)):
    """A model whose seeds end at `losses`; spikes: per 1,000 updates, without and with the author's scaling."""

    def outcome(losses, spikes):
        return {
            "argument": f"model={model},lr=0.001",
            "seeds": {
                seed: {
                    "loss": loss,
                    "spikes_per_1000": spikes,
                    "nonfinite_step": None if loss is not None else 7,
                    "grad_norm_peak": 3.0,
                    "best_loss": loss,
                    "best_step": 1500,
                }
                for seed, loss in zip(SEEDS, losses, strict=True)
            },
            "val": [(0, 4.0), (10, 2.5)],
            "train": [(5, 3.0), (10, 2.5)],
            "by_position": POSITIONS,
        }

    final = outcome(losses, 0.0) | {"by_position_longest": POSITIONS, "carried": dict(zip(SEEDS, losses, strict=True))}
    return {
        "model": model,
        "trials": [{"lr": 1e-3, "share": 0.1, "loss": 2.5}, {"lr": 3e-3, "share": 0.1, "loss": None}],
        "final": final,
        "spikes": {"none": outcome(losses, spikes[0]), "published": outcome(losses, spikes[1])}
        if model.removeprefix("mru_") in config.VARIANTS
        else {},
        "config": to_plain(from_config_dict(config.get_config(f"model={model},lr=0.001").to_dict())),
        "machine": "2 cores",
        "date": "2026-11-30",
    }


ENDS = {
    "mlp": 2.5,
    "mru_identity": 2.2,
    "mru_identity_normalised": 2.2,
    "mru_determinant": 2.3,
    "mru_ldu": 2.25,
    "mru_qr_cayley": 2.3,
    "mru_qr_expm": 2.3,
    "mru_orthogonal_cayley": 2.45,
    "mru_orthogonal_expm": 2.45,
    "attention_rope": 2.0,
    "attention_none": 2.1,
    "attention_xpos_512": 2.1,
    "linear_attention_rope": 2.2,
    "linear_attention_none": 2.2,
}
NOISE = (-0.001, 0.0, 0.001)


def records(**ends):
    """All models of the claims, some ending elsewhere: a loss, or the losses of the seeds."""
    given = ENDS | ends
    return [record(m, [end + n for n in NOISE] if isinstance(end, float) else end) for m, end in given.items()]


def claim(page, start):
    return next(line for line in page.splitlines() if line.startswith(start))


def test_an_interval_is_that_of_student():
    """t(0.975, 2) = 4.3027: mean 2 and standard error 1/sqrt(3)."""
    mean, half = mru_report.interval([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.302652729911275 / math.sqrt(3)))
    assert mru_report.interval([1.0]) == (1.0, math.inf)


def test_differences_are_paired_by_seed():
    """Seeds that differ much and models that differ little: only the pairs show it."""
    first, second = record("mlp", [2.0, 3.0, 4.0]), record("attention_rope", [1.9, 2.9, 3.9])
    mean, half = mru_report.paired(first, second)
    assert mean == pytest.approx(0.1)
    assert half == pytest.approx(0, abs=1e-9)


def test_claims_hold_where_the_numbers_say_so():
    page = mru_report.report(records())
    assert "1. *Every stabilised variant removes the loss spikes of identity.* **Not decided**" in page
    assert "shortcut.* Worse: **Holds**, determinant - identity +0.100 ± 0.000" in page
    ends = len(ENDS) * len(SEEDS)
    assert f"In the final runs, 0 of {ends} seeds of all models had a spike and 0 a value that was not finite" in page
    assert "(chosen on the same seeds), and the control of claim 2: identity - attention_rope " in claim(page, "6.")
    assert f"At the edge of what was tried: {', '.join(ENDS)}." in page  # one rate of two was finite
    assert "closer to the MLP than to qr_cayley.* **Holds**" in page
    assert "orthogonal_cayley 0.25 ± " in claim(page, "3.")
    assert "**Holds** for shears" in claim(page, "4.")
    assert (
        "ldu the best: **Does not hold**: ldu - identity, the best of the others (chosen on the same seeds), +0.050"
        in claim(page, "4.")
    )
    assert "RoPE beats no positions.* **Holds**: attention without - with RoPE +0.100" in page
    assert "it ends at 2.500, inside 2.45 to 2.55" in page


def test_claims_fail_where_the_numbers_say_so():
    page = mru_report.report(
        records(mru_orthogonal_cayley=2.27, mru_orthogonal_expm=2.2, mru_determinant=2.1, mlp=2.6, attention_none=1.9)
    )
    assert "shortcut.* Worse: **Does not hold**" in page
    assert "qr_cayley.* **Does not hold**" in claim(page, "3.")
    assert "**Not in every pair** for shears" in claim(page, "4.")
    assert "RoPE beats no positions.* **Does not hold**" in page
    assert "it ends at 2.600, OUTSIDE" in page


def test_noise_decides_nothing():
    page = mru_report.report(records(mru_determinant=[2.0, 2.2, 2.5]))
    assert "shortcut.* Worse: **Not decided**" in page


@pytest.mark.parametrize(("others", "verdict"), [(0.0, "**Holds**"), (2.0, "**Does not hold**")])
def test_spikes_of_identity_and_of_the_others(others, verdict):
    found = [
        record(model, [end + n for n in NOISE], (10.0 if model == "mru_identity" else others, 0.0))
        for model, end in ENDS.items()
    ]
    assert f"of identity.* {verdict}" in claim(mru_report.report(found), "1.")


def test_a_seed_that_did_not_stay_finite_is_shown():
    found = [r if r["model"] != "mru_identity" else record("mru_identity", [2.0, None, 2.1]) for r in records()]
    page = mru_report.report(found)
    assert claim(page, "| mru_identity |").startswith("| mru_identity | 2.050 ± 0.071 of 2 seeds")
    assert "shortcut.* Worse: **Not decided**, determinant - identity (not finite in a seed)" in page
    assert claim(page, "| identity |").split(" | ")[:4] == ["| identity", "0.0", "3", "1"]


def test_the_page_names_what_is_missing():
    page = mru_report.report(records()[:3])
    assert "Not run yet: attention_rope, mru_ldu, " in page
    assert "1. *" not in page
    assert mru_report.report([]) == "# Matrix recurrent units on shakespeare-char\n"


def test_the_search_is_the_same_for_every_model(tmp_path, monkeypatch):
    """Six trials with the seed of the search, then the best of them with the seeds of the study."""
    made = []

    def score(job, run, checkpoint="last", reading=None):
        made.append(run)
        loss = None if run.lr == 3e-3 else 2 + abs(math.log(run.lr / 5.5e-3))
        if loss is not None and run.share != 1:
            loss += abs(math.log(run.share * run.lr / 1e-3))
        return {"seeds": {"100": {"loss": loss, "alive": True}}}

    monkeypatch.setattr(Job, "score", score)
    monkeypatch.setattr(mru_study, "outcome", lambda job, run: {"run": run})
    monkeypatch.setattr(mru_study, "_elsewhere", lambda job, run: {})
    for model in config.MODELS:
        made.clear()
        found = mru_study.run_model(Job(model, tmp_path, tmp_path))
        assert len(made) == len(set(made)) == len(found["trials"]) == 6
        assert {(run.seeds, run.updates) for run in made} == {("100", 500)}
        final = found["final"]["run"]
        own = model.startswith(("mru", "rotrnn", "lru", "s5"))
        share = 0.09 if model.startswith("mru") else 0.1  # 3e-4 by 3, or 1e-3 as it is
        assert (final.lr, final.share) == ((1e-2, share) if own else (5.5e-3, 1.0))
        assert (final.seeds, final.updates) == ("0:5", 1500)
        assert found["spikes"].keys() == (
            {"none", "published"} if model.removeprefix("mru_") in config.VARIANTS else set()
        )


def test_a_run_from_end_to_end(tmp_path, monkeypatch):
    """What is kept of a real run, trained once and scored in every way."""
    monkeypatch.setattr(
        Job,
        "config",
        lambda job, run: from_config_dict(config.get_config(f"model={job.model},seeds=0:2,smoke").to_dict()),
    )
    monkeypatch.setattr(config, "LONGEST", 48)
    job, run = Job("mru_ldu", tmp_path, tmp_path), Run("mru_ldu", 1e-3, 0.1, "0:2", 12)
    found = mru_study.outcome(job, run) | mru_study._elsewhere(job, run)
    results = json.loads((job.folder(run) / "results.json").read_text())
    assert len(results) == 4
    plain = next(r for r in results if r["checkpoint"] == "last" and r["window"] is None and not r["carried"])
    for seed, values in found["seeds"].items():
        assert values["loss"] == plain["seeds"][seed]["loss"]
    assert found["val"][-1] == (12, pytest.approx(plain["mean"], abs=1e-4))
    assert [step for step, _ in found["val"]] == [0, 4, 8, 12]
    assert len(found["by_position"]) == 24
    assert len(found["by_position_longest"]) == 48
    assert statistics.fmean(found["by_position"]) == pytest.approx(plain["mean"], abs=0.01)
    assert found["carried"].keys() == {"0", "1"}


def test_finished_models_are_not_run_again_and_damage_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mru_study, "RECORDS", tmp_path / "mru.json")
    monkeypatch.setattr(mru_study, "PAGE", tmp_path / "mru.md")
    monkeypatch.setattr(mru_report, "FIGURE", tmp_path / "mru.png")
    monkeypatch.setattr(mru_study.prepare_data, "main", lambda argv: 0)
    asked = []
    monkeypatch.setattr(mru_study, "run_all", lambda work, jobs: asked.append([j.model for j in jobs]) or iter(()))
    (tmp_path / "mru.json").write_text(json.dumps(records()))
    mru_study.main(["mru_study", f"--out={tmp_path}", f"--data_dir={tmp_path}", "--models=mlp,lru"])
    assert asked == [["lru"]]
    assert [r["model"] for r in json.loads((tmp_path / "mru.json").read_text())] == [
        m for m in config.MODELS if m in ENDS
    ]
    assert (tmp_path / "mru.md").read_text() == mru_report.report(json.loads((tmp_path / "mru.json").read_text()))
    assert (tmp_path / "mru.png").stat().st_size > 10_000
    changed = records()
    changed[0]["config"]["optim"]["weight_decay"] = 0.2
    (tmp_path / "mru.json").write_text(json.dumps(changed))
    mru_study.main(["mru_study", f"--out={tmp_path}", f"--data_dir={tmp_path}", "--models=mlp"])
    assert asked[-1] == ["mlp"]
    assert "1 models in" in capsys.readouterr().out
    (tmp_path / "mru.json").write_text('[{"model": "mlp"}]')
    with pytest.raises(ConfigError, match=r"mru\.json is damaged .*: put back the committed one"):
        mru_study.main(["mru_study", f"--out={tmp_path}"])


def test_variants_that_do_not_stay_finite_are_not_free_of_spikes():
    lost = record("mru_ldu", [None] * 3, (None, None))
    found = [r if r["model"] != "mru_ldu" else lost for r in records()]
    spiking = record("mru_identity", [2.2] * 3, (5.0, 0.0))
    page = mru_report.report([r if r["model"] != "mru_identity" else spiking for r in found])
    assert "of identity.* **Does not hold** of ldu" in claim(page, "1.")
    assert "ldu not-finite not-finite not-finite" in claim(page, "1.")


def test_a_seed_held_since_it_was_not_finite_counts_as_lost():
    """Its parameters are those of before, and score an ordinary loss."""
    held = record("mru_determinant", [2.3] * 3)
    held["final"]["seeds"]["1"]["nonfinite_step"] = 900
    assert mru_report.losses(held)["1"] == math.inf


def test_windows_that_overflow_are_shown():
    found = records()
    found[1]["final"]["by_position_longest"] = []
    assert claim(mru_report.report(found), "| mru_identity |").split(" | ")[5] == "not finite"


def test_shears_can_be_worse():
    page = mru_report.report(records(mru_orthogonal_cayley=1.9, mru_orthogonal_expm=1.9))
    assert "**Does not hold** for shears" in claim(page, "4.")


def test_nothing_is_said_of_context_where_there_is_no_gain():
    assert "**Not decided**: qr_cayley gains nothing" in claim(mru_report.report(records(mru_qr_cayley=2.5)), "3.")


def test_a_run_is_kept_only_if_it_ended_and_is_the_one_that_was_asked_for(tmp_path, monkeypatch):
    """A run that was stopped and scored by hand is trained to its end; one of another config is refused."""
    plain = config.get_config("model=mlp,smoke").to_dict()
    ours, folder = from_config_dict(plain), tmp_path / "run"
    steps = iter([False, False, False, True])
    with pytest.raises(PreemptedError):
        scored(ours, folder, tmp_path, "val", "last", to_stop=lambda: next(steps))
    before = [score(folder, tmp_path, "val", which) for which in ("last", "best")]
    record, best = (scored(ours, folder, tmp_path, "val", which) for which in ("last", "best"))
    assert [found["updates"] for found in (*before, record, best)] == [3, 3, 12, 12]
    assert record["seeds"]["0"]["step"] == 12
    monkeypatch.setattr("training.loop.train", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr("training.results.score", lambda *_: pytest.fail("scored again"))
    assert scored(ours, folder, tmp_path, "val", "last") == record
    plain["optim"]["lr"] *= 2
    with pytest.raises(ConfigError, match=r"belongs to a run of another config: optim\.lr"):
        scored(from_config_dict(plain), folder, tmp_path, "val", "last")
