"""Everything that runs on the device: PTX intrinsics, the workers, and the tile kinds."""
