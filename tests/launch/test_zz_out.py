from tests.support.training import COMMON, gavel, judge_words
from tests.support.processes import wait_until
from pathlib import Path
def test_x(slurm, tmp_path):
    sweep = tmp_path / "abstain"
    words = ["cluster=slurm", "cluster.gpus_per_node=0", "cluster.time=null", *judge_words(tmp_path), f"run.dir={sweep}"]
    done = gavel(["train", "-m", *COMMON[:-1], *words, "reward.abstain=0.3,0.5,0.7", "seed=1,2"], tmp_path, slurm.environment)
    print(done.stdout.replace(str(tmp_path),"/shared/runs"), done.stderr)
    wait_until(lambda: not slurm.queue(), 150, "q")
    print(gavel(["status", str(sweep)], tmp_path, slurm.environment).stdout.replace(str(tmp_path),"/shared/runs"))
    p=sorted(sweep.glob("000*"))[0]
    print(gavel(["status", str(p)], tmp_path, slurm.environment).stdout.replace(str(tmp_path),"/shared/runs"))
