"""Where this user's caches lie: downloaded data sets and compiled programs."""

import os
from pathlib import Path

ENVIRONMENT = "OPTLEARN_CACHE"


def cache_folder() -> Path:
    """The folder of all caches; the environment variable ``OPTLEARN_CACHE`` names another one."""
    import platformdirs

    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else platformdirs.user_cache_path("optlearn", appauthor=False)
