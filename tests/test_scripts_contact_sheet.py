"""A sheet of images, to look at."""

import numpy as np
import pytest
from PIL import Image

from scripts import contact_sheet


def test_every_image_is_on_the_sheet_in_the_frame_of_its_label():
    images = np.full((3, 32, 32), [[[10]], [[20]], [[30]]], np.uint8)
    sheet = np.array(contact_sheet.sheet(images, np.array([0, 1, 0]), 2))
    width, height = 256 + 2 * contact_sheet.FRAME, 256 + 2 * contact_sheet.FRAME + contact_sheet.TEXT
    assert sheet.shape == (2 * height, 2 * width, 3)
    for number, (value, red) in enumerate(((10, True), (20, False), (30, True))):
        y, x = number // 2 * height, number % 2 * width
        assert (sheet[y + height // 2, x + width // 2] == value).all()
        frame = sheet[y + height - 1, x]
        assert (frame[0] > frame[1]) == red


def test_the_command_writes_a_file(tmp_path, capsys):
    out = tmp_path / "sheet.png"
    assert contact_sheet.main(["pathfinder", f"--out={out}", "--columns=2", "--rows=1"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert contact_sheet.main(["pathfinder", f"--out={tmp_path / 'no' / 'sheet.png'}", "--columns=1", "--rows=1"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit) as stop:
        contact_sheet.main(["pathfinder", f"--out={tmp_path / 'sheet.png'}", "--rows=0"])
    assert stop.value.code == 2
