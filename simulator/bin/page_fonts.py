"""Fonts of the simulator's page, made from npm packages: `make page-fonts`."""

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from fontTools.ttLib.tables._g_l_y_f import Glyph

FONTS = Path(__file__).parents[1] / "src/chatrig/page/static/fonts"

#: npm packages and the SHA-512 hashes of their archives.
PACKAGES = {
    "@fontsource/lato@5.3.0": "0WhF/4rhrw+ErIyneKvhHn2YAl+xf8GDtllgOgOzDmeaSlLQtjpChXaQOpWhG2BchQW0WJy2zLV12Hdg0ndOMw==",  # noqa: E501
    "@fontsource-variable/noto-sans@5.3.0": "e3ZuxzY9AL2psXPZlhwhnYrHUHv6PMoyK9MQ7croF0CUgURLqu9EMjW7q2FgVLwij1tjLsIHQrnwQ8aUcg4BiA==",  # noqa: E501
    "twemoji-colr-font@15.0.3": "UsK4JUpaczeVoMGeYMnKaMTxKt7fujg1nQOk4NaC0teZmdOo+uAai0DIuaSzsMkShtG4J75F0OEsVdGJ+Q1pHQ==",  # noqa: E501
}

#: Font files of the page, and their names in the packages.
LATIN_FONTS = {
    "lato-400.woff2": "lato-latin-400-normal.woff2",
    "lato-400-italic.woff2": "lato-latin-400-italic.woff2",
    "lato-700.woff2": "lato-latin-700-normal.woff2",
    "lato-900.woff2": "lato-latin-900-normal.woff2",
    "noto-sans.woff2": "noto-sans-latin-wght-normal.woff2",
}

SKIN_TONES = range(0x1F3FB, 0x1F400)

#: Code points that the emoji font lacks, so that the file is small: characters of text fonts, flags, and rare emoji.
EXCLUDED_CODE_POINTS = (
    (range(0x2190, 0x2200), "arrows"),
    (range(0x2648, 0x2654), "zodiac"),
    (range(0x3030, 0x329A), "CJK signs"),
    (range(0x1F004, 0x1F005), "mahjong"),
    (range(0x1F0CF, 0x1F0D0), "playing card"),
    (range(0x1F170, 0x1F180), "blood types"),
    (range(0x1F1E6, 0x1F200), "flags"),
    (range(0x1F201, 0x1F266), "squared CJK words"),
    (range(0x1F311, 0x1F31F), "moon phases"),
    (range(0x1F3D4, 0x1F3F1), "landscapes and buildings"),
    (range(0x1F464, 0x1F488), "people"),
    (range(0x1F550, 0x1F568), "clocks"),
    (range(0x1F681, 0x1F6A4), "vehicles"),
    (range(0x1F9D1, 0x1F9E0), "fantasy"),
    (range(0x1FA70, 0x1FAE0), "recent objects"),
    (range(0xE0000, 0xE0080), "tags"),
)


def fetch_package(folder: Path, package: str, digest: str) -> Path:
    """Download a package, check its hash, and return the folder with its files."""
    command = ["npm", "pack", "--silent", package]
    packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603
    archive = folder / packed.stdout.strip()
    if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != digest:
        sys.exit(f"{package}: the hash of the archive differs from PACKAGES.")
    target = folder / archive.stem
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")
    return target / "package"


def make_emoji_font(source: Path, target: Path) -> None:
    """Write the emoji font; skin tones are blank, so that 👍🏽 looks like 👍."""
    font = TTFont(source, recalcTimestamp=False)
    excluded = {code for codes, _ in EXCLUDED_CODE_POINTS for code in codes}
    codes = [code for code in font.getBestCmap() if code > 0x2000 and code != 0x200D and code not in excluded]
    options = Options(layout_features=[], name_IDs=["*"], flavor="woff2", recalc_timestamp=False)
    options.drop_tables += ["FFTM", "GSUB", "GPOS", "GDEF"]
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(font)
    for code in SKIN_TONES:
        name = font.getBestCmap()[code]
        font["COLR"].ColorLayers.pop(name, None)
        font["glyf"][name] = Glyph()
        font["hmtx"][name] = (0, 0)
    font.flavor = "woff2"
    font.save(target)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lato, noto, emoji = (fetch_package(Path(folder), package, digest) for package, digest in PACKAGES.items())
        for target, source in LATIN_FONTS.items():
            package = noto if target.startswith("noto") else lato
            (FONTS / target).write_bytes((package / "files" / source).read_bytes())
        licenses = {"Lato": lato, "Noto Sans": noto, "Twemoji (emoji.woff2)": emoji}
        texts = [f"{name}\n\n{(package / 'LICENSE').read_text().strip()}" for name, package in licenses.items()]
        (FONTS / "LICENSE").write_text(f"\n\n{'-' * 80}\n\n".join(texts) + "\n")
        make_emoji_font(emoji / "twemoji.woff2", FONTS / "emoji.woff2")


if __name__ == "__main__":
    main()
