"""The papers' experiments: the published calibrations, and what corrects them, at the same true epsilon."""
