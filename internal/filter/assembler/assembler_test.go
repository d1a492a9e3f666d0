package assembler

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

func finish(t *testing.T, b *Builder) asm.Instructions {
	t.Helper()
	ins, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return ins
}

// distances are by how many instructions jumps and calls go on, by their place.
func distances(t *testing.T, ins asm.Instructions) map[int]int {
	t.Helper()
	at, err := ins.SymbolOffsets()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]int{}
	for i := range ins {
		if label := target(&ins[i]); label != "" {
			to, ok := at[label]
			if !ok {
				t.Fatalf("instruction %d refers to %s, which is not there:\n%v", i, label, ins)
			}
			out[i] = to - i
		}
	}
	return out
}

func TestLabelsNameTheNextInstruction(t *testing.T) {
	b := New()
	b.Label("begin")
	b.Label("again")
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm(asm.R0, 1, "end"),
		asm.JEq.Imm(asm.R0, 2, "other end"),
		asm.JEq.Imm(asm.R0, 3, "again"), asm.Ja.Label("begin"))
	b.Label("other end")
	b.Label("end")
	b.Emit(asm.Return())
	got := distances(t, finish(t, b))
	for at, want := range map[int]int{1: 4, 2: 3, 3: -3, 4: -4} {
		if got[at] != want {
			t.Errorf("the jump at %d goes %d on, want %d", at, got[at], want)
		}
	}
}

func TestAMapMayHaveTheNameOfALabel(t *testing.T) {
	b := New()
	b.Emit(asm.LoadMapPtr(asm.R1, 0).WithReference("count"), asm.Ja.Label("count"))
	b.Label("end")
	b.Label("count")
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm(asm.R0, 0, "end"), asm.Return())
	ins := finish(t, b)
	if ins[0].Reference() != "count" {
		t.Errorf("the map is called %s", ins[0].Reference())
	}
	if got := distances(t, ins); got[1] != 1 || got[3] != -1 {
		t.Errorf("jumps go %v on", got)
	}
}

func TestAPartMadeAsideComesLater(t *testing.T) {
	b := New()
	part := b.Aside()
	part.Static("part", Pointer("state"))
	part.Emit(asm.Ja.Label("shared"))
	part.Label("last")
	b.Global("main", Pointer("ctx"))
	b.Emit(asm.Call.Label("part"), asm.Ja.Label("last"))
	b.Label("shared")
	b.Emit(asm.Return())
	if a, c := b.Fresh("x"), part.Fresh("x"); a == c {
		t.Errorf("%s is fresh twice", a)
	}
	b.Append(part)
	b.Emit(asm.Return())
	ins := finish(t, b)
	got := distances(t, ins)
	for at, want := range map[int]int{0: 3, 1: 3, 3: -1} {
		if got[at] != want {
			t.Errorf("instruction %d refers %d on, want %d", at, got[at], want)
		}
	}
	for at, name := range map[int]string{0: "main", 3: "part"} {
		if f := btf.FuncMetadata(&ins[at]); f == nil || f.Name != name || ins[at].Symbol() != name {
			t.Errorf("instruction %d begins %v, want function %s", at, f, name)
		}
	}
}

func TestMistakesWithLabelsAreReported(t *testing.T) {
	for want, write := range map[string]func(b *Builder){
		"no instruction has the label " +
			"nowhere": func(b *Builder) { b.Emit(asm.Ja.Label("nowhere")) },
		"no instruction has the label behind": func(b *Builder) {
			b.Emit(asm.Ja.Label("behind"))
			b.Label("behind")
		},
		"no instruction has the label dropped": func(b *Builder) {
			b.Emit(asm.Ja.Label("dropped"))
			b.Label("dropped")
			b.End()
			b.Emit(asm.Return())
		},
		"label twice is there twice": func(b *Builder) {
			b.Label("twice")
			b.Emit(asm.Return())
			b.Label("twice")
			b.Emit(asm.Return())
		},
		"label apart is there twice": func(b *Builder) {
			part := b.Aside()
			part.Label("apart")
			part.Emit(asm.Return())
			b.Label("apart")
			b.Emit(asm.Return())
			b.Append(part)
		},
	} {
		b := New()
		write(b)
		if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want: %s", err, want)
		}
	}
}

func TestAJumpReaches16Bits(t *testing.T) {
	for n, want := range map[int]bool{1<<15 - 1: false, 1 << 15: true} {
		b := New()
		b.Emit(asm.Ja.Label("end"))
		for range n {
			b.Emit(asm.Mov.Imm(asm.R0, 0))
		}
		b.Label("end")
		b.Emit(asm.Return())
		if got := FarJump(finish(t, b)); got != want {
			t.Errorf("a jump over %d instructions is far: %v", n, got)
		}
	}
	if n := Length(asm.Instructions{asm.LoadImm(asm.R0, 1, asm.DWord), asm.Return()}); n != 3 {
		t.Errorf("a load of 64 bits and a return count as %d instructions", n)
	}
}

// A label must mean the same everywhere, so nobody but this package puts one on an instruction.
func TestNobodyElseNamesInstructions(t *testing.T) {
	const root = "../../.."
	own := regexp.MustCompile(`\.WithSymbol\(|btf\.WithFuncMetadata\(|asm\.PseudoFunc`)
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(root, "bin") {
			return fs.SkipDir // what make builds, with sources of others
		}
		if strings.HasPrefix(path, filepath.Join(root, "internal/filter/assembler")) ||
			filepath.Ext(path) != ".go" {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if m := own.Find(text); m != nil {
			t.Errorf("%s has %s: package assembler does that", strings.TrimPrefix(path, root+"/"),
				m)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("%d files were read: the test shows nothing", files)
	}
}
