"""Words as tokens, over a closed vocabulary; any other word is spelled out, so that every text has tokens."""

from collections.abc import Iterable, Sequence

from .schema import Array

PADDING = "<pad>"  # token 0: no text
_SPELLED = "<word>"  # begins a word that is spelled out
_DIGITS = tuple(f"<{digit:x}>" for digit in range(16))  # half a byte of UTF-8 each
_STOP = "."
SPECIAL = (PADDING, _SPELLED, *_DIGITS, _STOP)
"""The first tokens of every vocabulary."""


def vocabulary_of(words: Iterable[str]) -> tuple[str, ...]:
    """A vocabulary of given words in the order of their first occurrence, after the special tokens.

    >>> vocabulary_of(["born", "in", "born"])[-2:]
    ('born', 'in')
    """
    return tuple(dict.fromkeys((*SPECIAL, *words)))


def documents_of(x: Array, tokenizer: "Tokenizer") -> list[str]:
    """The texts in one sequence x [L, 2] of a stream of text (see `Schema`), in their order."""
    last = int(x[:, 1].max(initial=0))
    return [tokenizer.decode(x[x[:, 1] == number, 0].tolist()) for number in range(1, last + 1)]


class Tokenizer:
    """Turns text into tokens and back; `decode(encode(text))` is `text` for every text.

    Words are what stands between single spaces; full stops at their end are tokens of their own. A word
    outside the vocabulary becomes the token `<word>` and two tokens for each of its bytes in UTF-8.

    Args:
      vocabulary: the words by token number, as `vocabulary_of` makes it.

    Raises:
      ValueError: it does not begin with the special tokens, or a word is there twice.

    >>> tokenizer = Tokenizer(vocabulary_of(["Ada", "was", "born"]))
    >>> tokenizer.words(tokenizer.encode("Ada was born."))
    ['Ada', 'was', 'born', '.']
    >>> tokenizer.words(tokenizer.encode("Ada won"))
    ['Ada', '<word>', '<7>', '<7>', '<6>', '<f>', '<6>', '<e>']
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        if tuple(vocabulary[: len(SPECIAL)]) != SPECIAL:
            raise ValueError(
                f"expected a vocabulary that begins with {SPECIAL[0]} and the other special ones"
            )
        self.vocabulary = tuple(vocabulary)
        self._numbers = {word: number for number, word in enumerate(vocabulary)}
        if len(self._numbers) != len(self.vocabulary):
            raise ValueError("expected a vocabulary of different words; found one twice")
        self._plain = {word: n for word, n in self._numbers.items() if n >= len(SPECIAL)}
        self._spelled, self._first_digit = self._numbers[_SPELLED], self._numbers[_DIGITS[0]]
        self.stop = self._numbers[_STOP]  # the token of a full stop

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return [token for word in text.split(" ") for token in self._encode_word(word)]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; padding is passed over, bytes that are no UTF-8 become U+FFFD.

        Args:
          tokens: token numbers in any order, such as a model may produce.
        """
        words: list[str] = []
        spelling: list[int] = []  # halves of the bytes of the word under way
        spelled = False

        def finish() -> None:
            nonlocal spelled
            if spelled:
                pairs = zip(spelling[::2], spelling[1::2], strict=False)
                words.append(bytes(16 * high + low for high, low in pairs).decode(errors="replace"))
                spelling.clear()
                spelled = False

        for token in tokens:
            digit = token - self._first_digit
            if 0 <= digit < len(_DIGITS):
                spelling.append(digit)
                spelled = True
                continue
            finish()
            if token == self._spelled:
                spelled = True
            elif token == self.stop:
                words[-1:] = [words[-1] + _STOP if words else _STOP]
            elif token != 0:
                words.append(self.vocabulary[token])
        finish()
        return " ".join(words)

    def number(self, word: str) -> int:
        """The token of a word of the vocabulary.

        Raises:
          KeyError: it is none, or a special token.
        """
        return self._plain[word]

    def words(self, tokens: Iterable[int]) -> list[str]:
        """The vocabulary's entries of tokens, one each."""
        return [self.vocabulary[token] for token in tokens]

    def _encode_word(self, word: str) -> list[int]:
        if word in self._plain:
            return [self._plain[word]]
        if len(word) > 1 and word.endswith(_STOP):
            return [*self._encode_word(word[:-1]), self.stop]
        halves = (half for byte in word.encode() for half in divmod(byte, 16))
        return [self._spelled, *(self._first_digit + half for half in halves)]
