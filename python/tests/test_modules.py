"""Submodules are there after `import uringload`, and each is imported when it is first asked for."""

from __future__ import annotations

import importlib.util
import pathlib
import pkgutil
import subprocess
import sys
import textwrap

import pytest

import uringload
import uringload.adapters


def run(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def modules(package: object) -> set[str]:
    """The public modules that a package has files of."""
    folder = pathlib.Path(str(getattr(package, "__file__"))).parent
    return {name for _, name, _ in pkgutil.iter_modules([str(folder)]) if not name.startswith("_")}


def test_each_module_is_listed_and_none_is_imported() -> None:
    for package in (uringload, uringload.adapters):
        assert modules(package) <= {*dir(package)}, package
    assert {*uringload.__all__} <= {*dir(uringload)}
    run(f"""
        import sys, uringload
        dir(uringload)
        for name in {modules(uringload) - {"errors"}!r}:
            assert f"uringload.{{name}}" not in sys.modules, name
        assert "torch" not in sys.modules and "importlib.util" not in sys.modules
    """)


@pytest.mark.parametrize(
    ("module", "package", "member"),
    [
        ("adapters.torchdata", "torchdata", "Node"), ("adapters.grain", "", "DataSource"),
        ("adapters.dali", "", "Batches"), ("adapters.webdataset", "", "Samples"),
        ("adapters.huggingface", "datasets", "iterable"), ("adapters.keras", "keras", "Batches"),
        ("lightning", "lightning", "Metrics"),
        ("prometheus", "prometheus_client", "Collector"), ("tensorboard", "", "Metrics"),
        ("torch", "torch", "Dataset"), ("transformers", "transformers", "Metrics"), ("wandb", "", "Metrics"),
    ],
)  # fmt: skip
def test_a_module_is_imported_as_it_is_used(module: str, package: str, member: str) -> None:
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"skipped: {package} is not installed")
    run(f"import uringload; uringload.{module}.{member}")


def test_a_module_whose_package_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run("""
        import sys
        sys.modules.update(torch=None, prometheus_client=None)
        import pydoc, uringload

        for name, package in (("torch", "torch"), ("prometheus", "prometheus_client")):
            assert not hasattr(uringload, name)
            try:
                getattr(uringload, name)
            except AttributeError as error:
                assert f"uringload.{name} cannot be imported: " in str(error) and package in str(error)
            try:
                __import__("uringload." + name)
            except (ImportError, uringload.Error) as error:
                assert not isinstance(error, AttributeError)
            else:
                raise AssertionError(name)
        assert "DataLoader" in pydoc.render_doc(uringload), "help goes on"
    """)
    with pytest.raises(AttributeError, match="has no attribute 'loader'"):
        uringload.loader
    with pytest.raises(AttributeError, match="'uringload.adapters' has no attribute 'gin'"):
        uringload.adapters.gin
