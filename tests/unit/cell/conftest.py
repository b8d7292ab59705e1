"""Lets the tests below import the helpers of this folder: pytest puts the folder of this file on the path."""
