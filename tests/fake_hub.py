"""The Hub's side of a push, in memory: what it holds, and who may write there."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError


class FakeHub:
    """Takes the place of ``HfApi``; a call with arguments that the real one has not is an error.

    ``repositories`` are by ID: private or not, and files. ``refuses`` holds names of methods that fail.
    """

    def __init__(self):
        self.repositories: dict[str, SimpleNamespace] = {}
        self.refuses: set[str] = set()

    def __call__(self) -> HfApi:
        api = create_autospec(HfApi, instance=True)
        for name in ("create_repo", "model_info", "upload_folder"):
            getattr(api, name).side_effect = self._guarded(name)
        return api

    def _guarded(self, name):
        def act(*arguments, **keywords):
            if name in self.refuses:
                response = SimpleNamespace(headers={}, request=None, status_code=403)
                raise HfHubHTTPError(f"403 Forbidden:\n{name}", response=response)
            return getattr(self, name)(*arguments, **keywords)

        return act

    def create_repo(self, repo_id, *, private, exist_ok):
        if repo_id in self.repositories:
            assert exist_ok
        else:
            self.repositories[repo_id] = SimpleNamespace(private=private, files={".gitattributes": b""})

    def model_info(self, repo_id):
        found = self.repositories[repo_id]
        return SimpleNamespace(
            private=found.private, siblings=[SimpleNamespace(rfilename=name) for name in found.files]
        )

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        folder = Path(folder_path)
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        self.repositories[repo_id].files |= files
