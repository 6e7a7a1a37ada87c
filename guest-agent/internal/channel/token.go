package channel

import (
	"encoding/hex"
	"errors"
)

// ParseToken reads a token written as 64 hexadecimal digits.
func ParseToken(digits string) (Token, error) {
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != TokenSize {
		return Token{}, errors.New("the channel token is not 64 hexadecimal digits")
	}
	return Token(raw), nil
}
