"""Tests of the Dockerfile without a Docker daemon. Each instruction is compared with the files of the repository."""

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import fjm2admin.cli
import fjm2d.cli
from fjm2admin.config import AdminConfig
from fjm2d.config import WanConfig

ROOT = Path(__file__).parents[2]
FILE = ROOT / "packaging" / "Dockerfile"
PROGRAMS = {"fjm2d": fjm2d.cli.main, "fjm2admin": fjm2admin.cli.main}


class Step(NamedTuple):
    """An instruction of the Dockerfile, and the build stage to which it belongs."""

    stage: str
    name: str
    text: str


def steps() -> list[Step]:
    text = re.sub(r"(?m)^#.*\n", "", FILE.read_text()).replace("\\\n", " ")
    found: list[Step] = []
    stage = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stage = rest.split(" AS ")[1]
        found.append(Step(stage, name, rest.strip()))
    return found


STEPS = steps()


def of(stage: str, name: str) -> list[str]:
    return [one.text for one in STEPS if (one.stage, one.name) == (stage, name)]


def test_stages_build_on_each_other_and_the_default_is_the_gateway() -> None:
    bases = [one.text.split(" AS ") for one in STEPS if one.name == "FROM"]
    assert [stage for _, stage in bases] == ["build", "base", "admin", "gateway"]
    for number, (image, _) in enumerate(bases):
        assert image == "python:3.11-slim" or image in [stage for _, stage in bases[:number]]


def test_copied_files_exist_and_reach_the_builder() -> None:
    passed = re.findall(r"(?m)^!(.*)$", FILE.with_name("Dockerfile.dockerignore").read_text())
    copied = [source for text in of("build", "COPY") for source in text.split()[:-1]]
    assert sorted(copied) == sorted(passed)
    assert all((ROOT / source).exists() for source in copied)
    assert of("base", "COPY") == ["--from=build /opt/fjm2 /opt/fjm2"]


def test_installed_extras_exist() -> None:
    (command,) = of("build", "RUN")
    (names,) = re.findall(r'"\.\[([a-z,]+)\]"', command)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert set(names.split(",")) == {"gateway", "admin"} <= set(setup["options.extras_require"])


def test_it_does_not_run_as_root_and_owns_its_state() -> None:
    (user,) = [one.text for one in STEPS if one.name == "USER"]
    number = user.partition(":")[0]
    (prepared,) = of("base", "RUN")
    assert int(number) > 0
    assert f"--uid {number}" in prepared
    assert STEPS.index(Step("base", "USER", user)) > STEPS.index(Step("base", "RUN", prepared))
    for stage in ("admin", "gateway"):
        (volume,) = of(stage, "VOLUME")
        assert volume in prepared.partition("install -d")[2].split()
    assert of("admin", "ENV")[0].startswith(f"FJM2ADMIN_DATA={of('admin', 'VOLUME')[0]}/")


@pytest.mark.parametrize("stage", ["admin", "gateway"])
def test_programs_and_their_arguments_exist(stage: str) -> None:
    (entry,), (arguments,) = of(stage, "ENTRYPOINT"), of(stage, "CMD")
    (program,) = json.loads(entry)
    assert CliRunner().invoke(PROGRAMS[program], [*json.loads(arguments), "--help"]).exit_code == 0
    for check in of(stage, "HEALTHCHECK"):
        options, _, command = check.partition(" CMD ")
        assert all(re.fullmatch(r"--(interval|timeout|start-period)=\d+s|--retries=\d", one) for one in options.split())
        name, *words = json.loads(command)
        assert CliRunner().invoke(PROGRAMS[name], [*words, "--help"]).exit_code == 0
    assert len(of("gateway", "HEALTHCHECK")) == 1


def test_exposed_ports_are_those_of_the_services() -> None:
    assert of("gateway", "EXPOSE") == [f"{port}/udp" for _, port in WanConfig().listen]
    defaults = AdminConfig()
    assert of("admin", "EXPOSE") == [f"{defaults.port}/tcp {defaults.advert_port}/udp"]


def test_every_instruction_is_known_and_lists_are_json() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD", "HEALTHCHECK"}
    assert {one.name for one in STEPS} == known
    for one in STEPS:
        if one.name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(one.text))
        elif one.name == "RUN":
            assert shlex.split(one.text)
