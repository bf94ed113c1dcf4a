"""Says what it was given; values of secrets are for using, not for printing. Started by given.yaml."""

import os
import sys
import tomllib
from pathlib import Path


def main(config: Path) -> None:
    """Look at everything once, and leave a result on the drive."""
    settings = tomllib.loads(config.read_text())
    print(f"config file: batch = {settings['batch']}")
    print(f"secret: a token of {len(os.environ['HF_TOKEN'])} characters")
    print(f"port 8085: others reach it at {os.environ['MOORAGE_PORT_8085']}")
    print(f"certificate: {', '.join(sorted(f.name for f in Path(os.environ['MOORAGE_IDENTITY_DIR']).iterdir()))}")
    print(f"drive: {os.environ['MOORAGE_DRIVE_DATA']}")
    (Path(os.environ["MOORAGE_OUTPUT_DIR"]) / "result").write_text("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
