"""Whole campaigns: with played parts in virtual time, and with real parts on rigs b and c."""
