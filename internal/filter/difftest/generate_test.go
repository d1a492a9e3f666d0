package difftest

import (
	"bytes"
	"testing"
)

func TestGeneratedPoliciesAreValid(t *testing.T) {
	for seed := range uint64(400) {
		if _, _, err := Policy(seed); err != nil {
			t.Error(err)
			return
		}
	}
}

func TestGenerateIsRepeatable(t *testing.T) {
	if !bytes.Equal(Generate(7), Generate(7)) ||
		!bytes.Equal(SetFile(7, setFileName), SetFile(7, setFileName)) || bytes.Equal(Generate(7),
		Generate(8)) {
		t.Error("the seed does not decide the text")
	}
}
