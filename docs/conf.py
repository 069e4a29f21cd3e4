"""Configuration of the documentation: Sphinx with MyST Markdown, notebooks run at every build.

Nothing is fetched from the network, neither while building nor while reading: formulas become MathML
(``_ext/mathml.py``), and the font for them is in ``_static/fonts``.
"""

import logging
import os
import sys
import tempfile
from pathlib import Path

import optlearn

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "optlearn"
author = "The optlearn developers"
copyright = f"2026, {author}"
version = release = optlearn.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.doctest",
    "commands",
    "gallery",
    "mathml",
    "measurements",
    "notebooks",
    "public_names",
    "scenarios",
]
exclude_patterns = ["_build", "_ext", "gallery/downloads"]
root_doc = "index"
suppress_warnings = ["config.cache"]  # a module's function in the configuration cannot be pickled

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_update_mathjax = False

# Notebooks run with settings of their own, whatever the user's are; the kernel's notes on its transport are
# of no interest here.
profile = Path(tempfile.mkdtemp(prefix="optlearn_docs_"), "profile_default")
profile.mkdir()
(profile / "ipython_kernel_config.py").write_text('get_config().IPKernelApp.log_level = "ERROR"\n')
os.environ["IPYTHONDIR"] = str(profile.parent)
os.environ["OPTLEARN_PROGRESS"] = "0"  # bars come and go with the machine's speed
logging.getLogger("traitlets").setLevel(logging.WARNING)

# DOCS_EXECUTION=cache runs only notebooks whose code has changed: for writing, not for publishing.
nb_execution_mode = os.environ.get("DOCS_EXECUTION", "force")
nb_execution_raise_on_error = True
nb_execution_timeout = int(os.environ.get("DOCS_CELL_SECONDS", "300"))  # a busy machine needs more
nb_execution_in_temp = True
nb_merge_streams = True
nb_number_source_lines = False

# Links into the references of other libraries need their inventories, which a build without a network cannot
# fetch: DOCS_INTERSPHINX=1 asks for them.
if os.environ.get("DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
python_display_short_literal_types = True

doctest_global_setup = "import numpy as np\nimport optlearn as ol"

html_theme = "furo"
html_title = "optlearn"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["optlearn.css"]
html_js_files = ["optlearn.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
