"""Jiang et al.: noisy rows along components, and differential LDA."""
