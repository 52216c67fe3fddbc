"""Static quantisation: operators on 8-bit integers in ranges that calibration data fixed."""

__all__: list[str] = []
