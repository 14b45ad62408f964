package meta

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MaxAmount is the highest number of an [Amount] that is not a percentage.
const MaxAmount = 1000

// Amount is a number of objects, such as 5, or a percentage of them, such as 25%.
//
// Decoding never fails, as that of [Duration]: a value that does not parse is kept and written back unchanged, and
// [InvalidFields] reports the field.
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 1 && self <= 1000",message="must be a
// +>  number from 1 to 1000, or a percentage such as 25%"
// +kubebuilder:validation:MaxLength=4
// +kubebuilder:validation:Pattern="^(100|[1-9][0-9]?)%$"
type Amount struct {
	Number    int32   `json:"-"`
	IsPercent bool    `json:"-"`
	Invalid   RawText `json:"-"`
}

// UnmarshalJSON implements [json.Unmarshaler]. The error is always nil.
func (a *Amount) UnmarshalJSON(b []byte) error {
	*a = Amount{}
	text := string(b)
	if text == "null" {
		return nil
	}
	limit := MaxAmount
	if percent, isText := textOfPercent(b); isText {
		a.IsPercent, text, limit = true, percent, 100
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > int64(limit) {
		*a = Amount{Invalid: RawText(b)}
		return nil
	}
	a.Number = int32(n)
	return nil
}

// textOfPercent returns the number of a percentage, and whether the JSON is a string.
func textOfPercent(b []byte) (number string, isText bool) {
	var text string
	if json.Unmarshal(b, &text) != nil {
		return "", false
	}
	number, isPercent := strings.CutSuffix(text, "%")
	if !isPercent || number == "" || number[0] < '1' || number[0] > '9' {
		return "", true
	}
	return number, true
}

// MarshalJSON implements [json.Marshaler].
func (a Amount) MarshalJSON() ([]byte, error) {
	if a.Invalid != "" || a.IsPercent {
		return a.Invalid.or(a.String())
	}
	return json.Marshal(a.Number)
}

// ToUnstructured implements the interface that the unstructured converter uses for values that are not JSON objects.
func (a Amount) ToUnstructured() any {
	if a.Invalid != "" || a.IsPercent {
		return a.Invalid.value(a.String())
	}
	return int64(a.Number)
}

// String returns the text form, such as 5 or 25%.
func (a Amount) String() string {
	if a.IsPercent {
		return fmt.Sprintf("%d%%", a.Number)
	}
	return strconv.Itoa(int(a.Number))
}

// Of returns the number of objects of a total: at least 1, and a percentage is rounded down. A nil Amount is the total.
func (a *Amount) Of(total int) int {
	switch {
	case a == nil:
		return total
	case a.IsPercent:
		return max(1, total*int(a.Number)/100)
	}
	return max(1, int(a.Number))
}

func (a Amount) invalid() string {
	return a.Invalid.problem(fmt.Sprintf("a number from 1 to %d, or a percentage such as 25%%", MaxAmount))
}
