import pytest

from autosched.errors import InvalidValueError
from autosched.target.threads import ThreadLimits, choose_threads, cpu_quota, thread_limits


@pytest.mark.parametrize(
    ("limits", "requested", "threads"),
    [
        (ThreadLimits(8, None, None, None), None, 8),
        (ThreadLimits(8, 2.5, None, None), None, 2),
        (ThreadLimits(8, 0.5, None, None), None, 1),
        (ThreadLimits(8, None, 3, None), None, 3),
        (ThreadLimits(8, None, 3, 2), None, 2),
        (ThreadLimits(8, None, None, 2), 4, 4),  # a flag wins over the setting
        (ThreadLimits(8, None, 3, None), 6, 3),  # but not over the other limits
        (ThreadLimits(8, None, None, None), 16, 8),
    ],
)
def test_the_least_limit_counts(limits, requested, threads):
    assert limits.threads(requested) == threads


def test_environment_is_read(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1,4")
    assert choose_threads(64) == 1
    monkeypatch.setenv("AUTOSCHED_NUM_THREADS", "5")
    assert thread_limits().autosched_num_threads == 5
    assert thread_limits().omp_num_threads == 1


def test_no_threads_is_an_error():
    with pytest.raises(InvalidValueError, match="0 threads"):
        choose_threads(0)


def test_quota_of_version_2_looks_at_parents(tmp_path):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    self_cgroup = tmp_path / "self"
    self_cgroup.write_text("0::/a/b\n")
    assert cpu_quota(tmp_path, self_cgroup) == 1.5


def test_quota_inside_a_container_where_the_group_is_not_visible(tmp_path):
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    self_cgroup = tmp_path / "self"
    self_cgroup.write_text("0::/docker/1234\n")
    assert cpu_quota(tmp_path, self_cgroup) == 2.0
    assert cpu_quota(tmp_path, tmp_path / "missing") == 2.0


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_quota_of_version_1(tmp_path, mount):
    group = tmp_path / mount / "job"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("300000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / mount / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / mount / "cpu.cfs_period_us").write_text("100000\n")
    self_cgroup = tmp_path / "self"
    self_cgroup.write_text(f"3:memory:/x\n2:{mount}:/job\n")
    assert cpu_quota(tmp_path, self_cgroup) == 3.0


def test_no_quota(tmp_path):
    assert cpu_quota(tmp_path, tmp_path / "missing") is None
