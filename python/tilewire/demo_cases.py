"""x"""
from dataclasses import dataclass
@dataclass
class CallStats:
    bytes_by_link: dict
    events: list
