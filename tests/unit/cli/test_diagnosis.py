"""What the doctor makes of facts, written by hand: no machine has all these faults."""

from __future__ import annotations

import pytest

from pytest_kernelprof.cli.doctor import (
    Canary,
    Finding,
    Machine,
    TorchFacts,
    cupti_release,
    diagnose,
    has_failure,
    lines_of,
)
from pytest_kernelprof.gpu.nvml import NvmlFacts
from pytest_kernelprof.gpu.procfs import Permissions

TORCH = TorchFacts(
    version="2.14.0+cu131",
    cuda="13.1",
    gpus=("NVIDIA H200, sm_90",),
    cuda_activity=True,
    cupti_path="libcupti.so.13",
    cupti_version=130_101,
)
SOUND = Machine(
    torch=TORCH,
    canary=Canary("seen"),
    canary_after_cpu=Canary("seen"),
    nvml=NvmlFacts(driver="590.44.01", mig=(False,)),
    packages={"pytest": "9.2.0", "pytest-benchmark": "5.3.1", "triton": "3.7.1"},
    driver="590.44.01",
    permissions=Permissions(admin_only=False),
    temp_folder="tmp",
    temp_free_bytes=10**10,
)
NO_GPU = Machine(
    torch=TorchFacts(version="2.13.0+cpu", why_no_gpu="no CUDA device: built without CUDA"),
    canary=Canary("no gpu"),
    packages={"pytest": "9.2.0"},
)


def finding(machine: Machine, name: str) -> Finding:
    (found,) = [one for one in diagnose(machine) if one.name == name]
    return found


def names(machine: Machine) -> list[str]:
    return [one.name for one in diagnose(machine)]


def test_a_sound_machine_is_all_ok_and_names_its_parts() -> None:
    found = diagnose(SOUND)
    assert {one.state for one in found} == {"ok"}
    assert not any(one.remedy for one in found)
    assert finding(SOUND, "GPU").text == "NVIDIA H200, sm_90; driver 590.44.01"
    assert finding(SOUND, "CUPTI").text == "of CUDA 13.1 Update 1 (libcupti.so.13)"


def test_what_is_newer_than_what_was_tried_is_a_warning_with_a_remedy() -> None:
    torch = finding(SOUND._replace(torch=TORCH._replace(version="99.1.2+cu200")), "torch")
    ours = finding(SOUND._replace(packages={"pytest": "99.0.0"}), "pytest")
    assert (torch.state, ours.state) == ("warn", "warn")
    assert "; torch 99.1 is newer than what was tried (" in torch.text
    assert "; pytest 99.0 is newer than what was tried (" in ours.text
    assert torch.remedy == ours.remedy != ""


def test_a_choice_of_gpus_is_shown() -> None:
    machine = SOUND._replace(environment={"CUDA_VISIBLE_DEVICES": "3"})
    assert finding(machine, "GPU").text.endswith("; CUDA_VISIBLE_DEVICES=3")


def test_whatever_is_not_ok_has_a_remedy() -> None:
    machines = [
        NO_GPU,
        SOUND._replace(torch=TorchFacts(error="torch cannot be imported")),
        SOUND._replace(canary=Canary("blind", "why"), permissions=Permissions(True)),
        SOUND._replace(temp_error="no space", packages={}),
    ]
    wrong = [one for machine in machines for one in diagnose(machine) if one.state != "ok"]
    assert len(wrong) >= 6
    assert all(one.remedy for one in wrong)


def test_without_a_gpu_nothing_about_gpus_is_claimed_and_it_is_no_failure() -> None:
    assert not has_failure(diagnose(NO_GPU))
    assert "--kernelprof-device=cpu" in finding(NO_GPU, "GPU").remedy
    assert not {"CUPTI", "permission", "canary", "NVML", "MIG"} & set(names(NO_GPU))


def test_without_torch_it_fails_and_says_why() -> None:
    machine = Machine(torch=TorchFacts(error="torch cannot be imported"), canary=Canary("no gpu"))
    assert has_failure(diagnose(machine))
    assert finding(machine, "torch").state == "fail"
    assert "GPU" not in names(machine)


def test_a_driver_that_torch_cannot_use_is_a_failure_that_names_the_build() -> None:
    broken = NO_GPU._replace(driver="590.44.01")
    assert finding(broken, "GPU").state == "fail"
    assert "built for CUDA" in finding(broken, "GPU").remedy


def test_hidden_gpus_are_a_warning_that_names_the_variable() -> None:
    torch = TorchFacts(
        version="2.14", cuda="13.1", why_no_gpu="no CUDA device: CUDA_VISIBLE_DEVICES=''"
    )
    hidden = NO_GPU._replace(torch=torch, environment={"CUDA_VISIBLE_DEVICES": ""}, driver="590")
    assert finding(hidden, "GPU").state == "warn"
    assert "unset CUDA_VISIBLE_DEVICES" in finding(hidden, "GPU").remedy


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        (23, "warn", "CUDA 12.5 .*correlation ids"),
        (24, "warn", "CUDA 12.6 .*from Update 2 on kernels may get bad time stamps"),
        (28, "warn", "CUDA 12.9 Update 1 .*; kernels may get bad time stamps"),
        (130_001, "warn", "CUDA 13.0 Update 1 .*time stamps"),
        (130_100, "warn", "CUDA 13.1 .*correlation ids"),
        (130_101, "ok", "CUDA 13.1 Update 1"),
        (130_300, "ok", "CUDA 13.3"),
        (0, "unknown", "no CUPTI library"),
    ],
)
def test_known_bad_ranges_of_cupti(version: int, state: str, words: str) -> None:
    import re

    found = finding(SOUND._replace(torch=TORCH._replace(cupti_version=version)), "CUPTI")
    assert found.state == state
    assert re.search(words, found.text)
    assert ("time stamps" in found.text) is (24 <= version < 130_100)


def test_releases_of_cupti() -> None:
    assert [cupti_release(v) for v in (18, 25, 26, 130_000)] == [
        "11.8 or older",
        "unknown (API version 25)",
        "12.8",
        "13.0",
    ]


def test_a_torch_without_cupti_is_a_failure() -> None:
    blind = SOUND._replace(torch=TORCH._replace(cuda_activity=False))
    assert finding(blind, "CUPTI").state == "fail"


def test_rocm_has_no_cupti_to_look_at() -> None:
    rocm = SOUND._replace(torch=TORCH._replace(cuda="", hip="7.0"))
    assert "CUPTI" not in names(rocm)
    assert finding(rocm, "torch").text.endswith("built for ROCm 7.0")


@pytest.mark.parametrize(
    ("admin_only", "may", "canary", "state"),
    [
        (False, False, "seen", "ok"),
        (True, True, "blind", "ok"),
        (True, False, "seen", "ok"),
        (True, False, "blind", "fail"),
        (None, False, "seen", "unknown"),
    ],
)
def test_who_may_profile(admin_only: bool | None, may: bool, canary: str, state: str) -> None:
    machine = SOUND._replace(
        permissions=Permissions(admin_only, may),
        canary=Canary(canary),  # type: ignore[arg-type]
    )
    assert finding(machine, "permission").state == state


@pytest.mark.parametrize(
    ("environment", "injected", "tool"),
    [
        ({"NSYS_PROFILING_SESSION_ID": "1"}, (), "Nsight Systems"),
        ({"CUDA_INJECTION64_PATH": "lib.so"}, (), "CUDA_INJECTION64_PATH"),
        ({"NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "1"}, (), "Nsight Compute"),
        ({}, ("libToolsInjection64.so",), "libToolsInjection64.so"),
    ],
)
def test_another_tool_is_named(
    environment: dict[str, str], injected: tuple[str, ...], tool: str
) -> None:
    found = finding(SOUND._replace(environment=environment, injected=injected), "other tools")
    assert found.state == "warn"
    assert tool in found.text


@pytest.mark.parametrize(
    ("variable", "value", "name", "state"),
    [
        ("KINETO_USE_DAEMON", "1", "Kineto", "warn"),
        ("KINETO_CONFIG", "file", "Kineto", "warn"),
        ("TEARDOWN_CUPTI", "1", "Kineto", "warn"),
        ("TEARDOWN_CUPTI", "0", "Kineto", "ok"),
        ("KINETO_LOG_LEVEL", "0", "Kineto", "ok"),
        ("CUDA_LAUNCH_BLOCKING", "1", "environment", "warn"),
        ("TRITON_INTERPRET", "1", "environment", "warn"),
    ],
)
def test_settings_that_disturb(variable: str, value: str, name: str, state: str) -> None:
    found = finding(SOUND._replace(environment={variable: value}), name)
    assert (found.state, variable in found.text) == (state, True)


@pytest.mark.parametrize("state", ["blind", "crashed"])
def test_a_canary_that_was_not_seen_is_a_failure_in_its_own_words(state: str) -> None:
    machine = SOUND._replace(canary=Canary(state, "the cause"))  # type: ignore[arg-type]
    found = finding(machine, "canary")
    assert (found.state, found.text) == ("fail", "the cause")
    assert "CPU-only first" not in names(machine)


def test_a_torch_that_a_cpu_only_profile_blinds_is_a_warning() -> None:
    machine = SOUND._replace(canary_after_cpu=Canary("blind", "why"))
    assert finding(machine, "CPU-only first").state == "warn"
    assert not has_failure(diagnose(machine))
    dead = SOUND._replace(canary_after_cpu=Canary("crashed", "no answer"))
    assert finding(dead, "CPU-only first").state == "unknown"


@pytest.mark.parametrize(
    ("pytest_version", "bench", "state"),
    [
        ("9.2.0", "5.2.3", "warn"),
        ("9.1.0", "5.2.3", "ok"),
        ("9.2.0", "5.3.0", "ok"),
        ("10.0.0", "5.2", "warn"),
        ("9.2.0", "", "ok"),
    ],
)
def test_pairs_of_pytest_and_pytest_benchmark(pytest_version: str, bench: str, state: str) -> None:
    packages = {"pytest": pytest_version} | ({"pytest-benchmark": bench} if bench else {})
    assert finding(SOUND._replace(packages=packages), "pytest").state == state


def test_nvml_that_does_not_answer_is_unknown() -> None:
    found = finding(SOUND._replace(nvml=NvmlFacts(error="not installed")), "NVML")
    assert (found.state, found.text) == ("unknown", "not installed")
    assert "nvidia-ml-py" in found.remedy


@pytest.mark.parametrize("mig", [(True, False), (False, True)])
def test_divided_gpus_are_a_warning(mig: tuple[bool, ...]) -> None:
    assert finding(SOUND._replace(nvml=NvmlFacts(mig=mig)), "MIG").state == "warn"


def test_a_divided_gpu_shows_by_its_name_too() -> None:
    torch = TORCH._replace(gpus=("NVIDIA H100 80GB HBM3 MIG 1g.10gb, sm_90",))
    assert finding(SOUND._replace(torch=torch), "MIG").state == "warn"


def test_little_space_is_a_warning_and_none_a_failure() -> None:
    little = SOUND._replace(temp_free_bytes=5_000_000)
    assert finding(little, "temporary files").state == "warn"
    assert "5 MB free" in finding(little, "temporary files").text
    assert finding(SOUND._replace(temp_error="read-only"), "temporary files").state == "fail"


def test_each_finding_is_a_line_and_so_is_its_remedy() -> None:
    lines = lines_of([Finding("a", "ok", "fine"), Finding("long name", "warn", "bad", "do it")])
    assert lines == [
        "ok       a          fine",
        "warn     long name  bad",
        "                    -> do it",
    ]
