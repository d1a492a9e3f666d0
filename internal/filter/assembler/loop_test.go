package assembler

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// A load of a 64 bit constant takes two slots. A jump across one that ends just before the loop was
// taken for one into the loop, and moved.
func TestJumpsAcrossConstantsStayWhenALoopGetsItsJump(t *testing.T) {
	jump := func(op asm.JumpOp, offset int16) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(op), Offset: offset}
	}
	got := jumpIntoLoops(asm.Instructions{
		jump(asm.Ja, 4),                       // to the head
		jump(asm.JEq, 2),                      // to the move
		asm.LoadImm(asm.R1, 1<<40, asm.DWord), // two slots
		asm.Mov.Imm(asm.R0, 0),                // falls into the head
		jump(asm.JNE, -5),                     /* the head */ // to the second
		asm.Return(),
	})
	want := []int16{5, 2, 0, 0, 0, -6, 0}
	if len(got) != len(want) {
		t.Fatalf("%d instructions, want %d:\n%v", len(got), len(want), got)
	}
	for i := range want {
		if got[i].Offset != want[i] {
			t.Errorf("instruction %d leads %d slots on, want %d", i, got[i].Offset, want[i])
		}
	}
}
