"""Imtiaz and Sarwate, and Xu et al.: private principal components."""
