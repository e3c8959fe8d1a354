"""Series: releases that follow each other."""
