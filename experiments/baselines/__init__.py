"""What etproto is measured against: libraries, other compilers, and its own tiles as one launch an operator."""
