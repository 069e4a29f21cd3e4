"""The collector of code blocks finds what pages hold, and marks count for the next block only."""

from tests.docs.blocks import PAGES, blocks, commands, slow

PAGE = """
# A page
<!-- slow: it is long -->

```python
a = 1
```

<!-- needs: torch -->
```{code-cell} ipython3
:tags: [hide-input]
b = a
```

```console
$ optlearn solve dropout --set eta=1  # a remark
pip install something
```

<!-- skip: needs a cluster -->
```python
c
```

    .venv/bin/optlearn list
    make demo

- a list

  ```{doctest}
  >>> 1 + 1
  2
  ```

```text
not code
```
"""


def test_blocks_are_found_with_their_marks():
    found = [
        (block.kind, block.code, block.needs, block.skip) for block in blocks(PAGE) if block.kind != "shell"
    ]
    assert found == [
        ("python", "a = 1", "", ""),
        ("python", "b = a", "torch", ""),
        ("python", "c", "", "needs a cluster"),
        ("doctest", ">>> 1 + 1\n2", "", ""),
    ]
    assert slow(PAGE) == "it is long"


def test_commands_are_found_without_prompt_folder_and_remark():
    assert [command for _, command in commands(PAGE)] == [
        "optlearn solve dropout --set eta=1",
        "optlearn list",
        "make demo",
    ]


def test_pages_with_code_are_found():
    with_python = {
        page.name
        for page in PAGES
        if any(block.kind == "python" for block in blocks(page.read_text(encoding="utf-8")))
    }
    assert {"README.md", "index.md", "start.md", "own_model.md", "frameworks.md"} <= with_python
