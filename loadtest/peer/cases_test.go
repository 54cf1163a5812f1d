package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Recorded cases beside the allocator that is judged by them.
const recordedCases = "../../libs/structured/testdata/allocator"

// These need minutes in the reference, or never end.
const hardCases = "hard.json"

type recordedFile struct {
	Cases []json.RawMessage `json:"cases"`
}

type recordedCase struct {
	ID          string       `json:"id"`
	Expect      expectation  `json:"expect"`
	ExpectAllOn *expectation `json:"expectAllOn"`
}

func TestRecordedCasesGetTheRecordedAnswer(t *testing.T) {
	if err := chooseVariant("experimental"); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(recordedCases, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, path := range paths {
		if filepath.Base(path) == hardCases {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file recordedFile
		if err := json.Unmarshal(content, &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range file.Cases {
			judge(t, c)
			judged++
		}
	}
	if judged < 600 {
		t.Errorf("only %d cases were found", judged)
	}
}

func judge(t *testing.T, line json.RawMessage) {
	t.Helper()
	var recorded recordedCase
	if err := json.Unmarshal(line, &recorded); err != nil {
		t.Fatal(err)
	}
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, line); err != nil {
		t.Fatal(err)
	}
	if err := answerCases(&compact, &out, time.Minute); err != nil {
		t.Fatalf("%s: %v", recorded.ID, err)
	}
	var got caseAnswer
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	same(t, recorded.ID, recorded.Expect, got.Expect)
	if recorded.ExpectAllOn == nil {
		recorded.ExpectAllOn = &recorded.Expect
	}
	same(t, recorded.ID+" (all gates on)", *recorded.ExpectAllOn, got.ExpectAllOn)
}

func same(t *testing.T, id string, want, got expectation) {
	t.Helper()
	// Texts are not recorded.
	for _, answer := range []*expectation{&want, &got} {
		if answer.Error != nil {
			answer.Error = &expectedError{Kind: answer.Error.Kind, Scope: answer.Error.Scope}
		}
	}
	wantText, gotText := text(t, want), text(t, got)
	if wantText != gotText {
		t.Errorf("%s: want %s\ngot %s", id, wantText, gotText)
	}
}

func text(t *testing.T, answer expectation) string {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestASearchThatTakesTooLongIsGivenUp(t *testing.T) {
	if err := chooseVariant("experimental"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(recordedCases, hardCases))
	if err != nil {
		t.Fatal(err)
	}
	var file recordedFile
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		if !strings.Contains(string(c), "\"alloc-9002\"") {
			continue
		}
		var compact, out bytes.Buffer
		if err := json.Compact(&compact, c); err != nil {
			t.Fatal(err)
		}
		if err := answerCases(&compact, &out, 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		want := `{"id":"alloc-9002","expect":{"outcome":"gave-up"},"expectAllOn":{"outcome":"gave-up"}}` + "\n"
		if out.String() != want {
			t.Errorf("want %s, got %s", want, out.String())
		}
		return
	}
	t.Error("the hard case was not found")
}
