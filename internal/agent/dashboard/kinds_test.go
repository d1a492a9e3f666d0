package dashboard

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"levee/internal/agent/kind"
	"levee/web"
)

// TestEachKindOfFloodHasAColourOfItsOwn, on light and on dark ground, and the page gets it from the
// table: a kind is one row.
func TestEachKindOfFloodHasAColourOfItsOwn(t *testing.T) {
	res := httptest.NewRecorder()
	http.FileServerFS(files{web.Dashboard()}).ServeHTTP(res,
		httptest.NewRequest(http.MethodGet, "/"+kindsFile, nil))
	sheet := res.Body.String()
	if res.Code != http.StatusOK ||
		!strings.HasPrefix(res.Header().Get("Content-Type"), "text/css") {
		t.Fatal(res.Code, res.Header())
	}
	colour := regexp.MustCompile(`^#[0-9a-f]{6}$`)
	seen := map[string]string{}
	for _, r := range kind.Rows {
		for ground, c := range map[string]string{"light": r.Colour, "dark": r.Night} {
			if other := seen[ground+c]; other != "" || !colour.MatchString(c) {
				t.Errorf("%s has %q on %s ground, as %q: want #rrggbb that no other row has",
					r.Name, c, ground, other)
			}
			seen[ground+c] = r.Name
		}
		if n := strings.Count(sheet, "--kind-"+r.Name+": "); n != 3 {
			t.Errorf("%s stands in the sheet %d times, not for light, dark and as chosen",
				r.Name, n)
		}
	}
	index, err := fs.ReadFile(files{web.Dashboard()}, "index.html")
	if err != nil || !strings.Contains(string(index), `href="`+kindsFile+`"`) {
		t.Errorf("the page does not ask for the sheet: %v", err)
	}
}
