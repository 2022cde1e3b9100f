package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// onlyIn has the fields of a status that one of its renderers leaves out, by "text KEY" or "page KEY", with the reason.
var onlyIn = map[string]string{
	"page command":                 "for programs",
	"page cq":                      "xwarp resource show",
	"page ipsec":                   "xwarp status lists SAs",
	"page listener":                "xwarp resource show",
	"page live":                    "tuning: xwarp status --json",
	"page mr":                      "xwarp resource show",
	"page mw":                      "xwarp resource show",
	"page partial_checksum_frames": "in the events",
	"page pd":                      "xwarp resource show",
	"page qp":                      "the table of connections",
	"page rdma_rx_bytes":           "a plot",
	"page rdma_tx_bytes":           "a plot",
	"page reopened":                "in the events",
	"page retransmitted_bytes":     "a plot",
	"page rx_grown":                "tuning: xwarp status --json",
	"page rx_offered":              "tuning: xwarp status --json",
	"page schema":                  "for programs",
	"page srq":                     "xwarp resource show",
	"page transmit":                "named by way",
	"text command":                 "for programs",
	"text device":                  "the heading names it",
	"text memory":                  "of exports of memory",
	"text mw":                      "xwarp resource show",
	"text rejected":                "xwarp statistic show",
	"text rx_grown":                "tuning: --json has it",
	"text rx_offered":              "tuning: --json has it",
	"text schema":                  "for programs",
	"text srq":                     "xwarp resource show",
}

// TestStatusIsShownEverywhere: xwarp status and the status page show every field of the JSON document, or onlyIn says
// why not. Fields get values that occur nowhere else.
func TestStatusIsShownEverywhere(t *testing.T) {
	b, err := os.ReadFile("../../engine/daemon/web/static/page.js")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	s := view.Status{Devices: make([]view.Device, 1), Exports: make([]view.Export, 1)}
	var values []struct{ key, value string }
	n := 7000
	fill := func(v reflect.Value) {
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			n++
			value := fmt.Sprint(n)
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				value = "value" + value
				f.SetString(value)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			case reflect.Float64:
				f.SetFloat(float64(n))
				value = seconds(float64(n)).String()
			case reflect.Bool:
				f.SetBool(true)
				value = "another version"
			case reflect.Slice:
				if f.Type().Elem().Kind() != reflect.String {
					continue
				}
				value = "value" + value
				f.Set(reflect.ValueOf([]string{value}))
			default:
				continue
			}
			values = append(values, struct{ key, value string }{key, value})
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	fill(reflect.ValueOf(&s.Devices[0]).Elem())
	fill(reflect.ValueOf(&s.Exports[0]).Elem())
	fill(reflect.ValueOf(&s.Objects).Elem())
	s.Devices[0].Link = control.LinkDown
	s.Exports[0].Serve = "directory"
	var out bytes.Buffer
	if err := writeStatus(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		inText := strings.Contains(out.String(), v.value) || v.key == "link" || v.key == "serve" ||
			regexp.MustCompile(`[0-9.]+ [KMG]iB`).MatchString(out.String()) && isBytes(v.key)
		if !inText && onlyIn["text "+v.key] == "" {
			t.Errorf("xwarp status does not show %s (%s)\n%s", v.key, v.value, &out)
		}
		if !regexp.MustCompile(`\.`+v.key+`\b`).MatchString(page) && onlyIn["page "+v.key] == "" {
			t.Errorf("the status page does not show %s", v.key)
		}
	}
}

// isBytes reports whether a field is printed as a size.
func isBytes(key string) bool {
	return strings.HasSuffix(key, "bytes") || key == "size" || key == "used"
}
