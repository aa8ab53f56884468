"""Make the report of three models, open it in a browser, look whether each plot shows something, keep a picture.

    python benchmarks/report_page.py runs/arccse/model

evaluates ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``) with mean pooling, the baseline;
all-MiniLM-L6-v2; and the models that are named, with ``sbert-plugins evaluate --report``. The page is rendered by headless
Chromium (Debian's package ``chromium``) to ``benchmarks/results/report.png``, and ``report_page.json`` says what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path

import numpy as np
from PIL import Image
from provenance import provenance, refuse_changes

from sbert_plugins import cli, recipes
from sbert_plugins.recipes.output import write_json

RESULTS = Path(__file__).parent / "results"
WIDTH = 1960  # two columns
# Written into a copy of the page: where the browser put each image, and whether it could read it.
PROBE = """<script>addEventListener("load", () => {
  document.body.setAttribute("data-seen", JSON.stringify({
    height: document.documentElement.scrollHeight,
    images: [...document.images].map((image) => {
      const box = image.getBoundingClientRect();
      return {alt: image.alt, natural: image.naturalWidth, box: [box.left, box.top, box.right, box.bottom].map(Math.round)};
    })}));
});</script>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="OUTPUT/model of a training")
    parser.add_argument("--output", help="keep the page here")
    options = parser.parse_args()
    refuse_changes()
    with tempfile.TemporaryDirectory() as scratch:
        published = Path(scratch) / "all-MiniLM-L6-v2"
        recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu").save_pretrained(str(published))
        trunk = Path(os.environ["SBERT_PLUGINS_DATA"]) / "encoders" / "minilm-mlm"
        folder = Path(options.output or Path(scratch) / "page")
        if cli.main(["evaluate", str(trunk), str(published), *options.models, "--report", str(folder)]):
            raise SystemExit("the evaluation failed.")
        seen, image = render(folder / "index.html", Path(scratch))
        record = {
            "command": " ".join(["python benchmarks/report_page.py", *map(os.path.relpath, options.models)]),
            **json.loads((folder / "report.json").read_text(encoding="utf-8")),
            "page_bytes": (folder / "index.html").stat().st_size,
            "plots": seen,
            "trainings": [_training(Path(model).parent / "results.json") for model in options.models],
            "browser": subprocess.run([_browser(), "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        }
    image.quantize(256).save(RESULTS / "report.png", optimize=True)
    write_json(RESULTS / "report_page.json", record | provenance())
    for plot in seen:
        print(f"{plot['plot']}: {plot['width']} x {plot['height']} pixels, {100 * plot['ink']:.1f} % not white")
    empty = [plot["plot"] for plot in seen if plot["natural"] == 0 or plot["ink"] < 0.01 or plot["colours"] < 20]
    if empty:
        raise SystemExit(f"plots that show nothing: {empty}")


def render(page: Path, scratch: Path) -> tuple[list[dict[str, object]], Image.Image]:
    """Return what each plot looks like in the browser, and the page as a picture."""
    copy = scratch / "probe.html"
    copy.write_text(page.read_text(encoding="utf-8") + PROBE, encoding="utf-8")
    dom = _chromium("--dump-dom", f"file://{copy}").stdout
    seen = json.loads(unescape(re.search(r'data-seen="([^"]*)"', dom)[1]))
    picture = scratch / "page.png"
    _chromium(f"--screenshot={picture}", f"--window-size={WIDTH},{seen['height']}", f"file://{page.resolve()}")
    image = Image.open(picture).convert("RGB")
    plots = []
    for box in seen["images"]:
        pixels = np.asarray(image.crop(box["box"])).reshape(-1, 3)
        left, top, right, bottom = box["box"]
        plots.append(
            {
                "plot": box["alt"],
                "natural": box["natural"],
                "width": right - left,
                "height": bottom - top,
                "ink": round(float((pixels < 250).any(axis=1).mean()), 4),
                "colours": len(np.unique(pixels, axis=0)),
            }
        )
    return plots, image


def _browser() -> str:
    browser = shutil.which("chromium")
    if browser is None:
        raise SystemExit("this needs headless Chromium: apt-get install chromium")
    return browser


def _chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},1000"]
    return subprocess.run([_browser(), *flags, *arguments], capture_output=True, text=True, check=True, timeout=120)


def _training(path: Path) -> dict[str, object]:
    """Return how a model was made, without its log."""
    run = json.loads(path.read_text(encoding="utf-8"))
    return {key: run[key] for key in ("method", "sentences", "settings", "loss", "seed", "steps", "seconds", "after")}


if __name__ == "__main__":
    main()
