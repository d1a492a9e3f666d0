package literal

import (
	"strconv"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Connections reads the number of `connections max`.
func Connections(text string) (int, diag.Problem) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 || n > policy.MostConnections {
		return 0, MaxProblem("connections max", text, policy.MostConnections)
	}
	return int(n), diag.Problem{}
}
