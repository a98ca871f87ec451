package gobench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// header is the first line of a file of figures.
var header = []string{"benchmark", "unit", "value"}

// WriteFile writes the figures as comma-separated values, a figure a line.
func (f Figures) WriteFile(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	rows := [][]string{header}
	for _, name := range f.Names() {
		for _, unit := range sorted(f[name]) {
			rows = append(rows, []string{name, unit, strconv.FormatFloat(f[name][unit], 'g', 6, 64)})
		}
	}
	return csv.NewWriter(file).WriteAll(rows)
}

// ReadFile reads what WriteFile has written.
func ReadFile(path string) (f Figures, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r := csv.NewReader(file)
	r.FieldsPerRecord = len(header)
	if _, err := r.Read(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f = Figures{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		v, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			line, _ := r.FieldPos(2)
			return nil, fmt.Errorf("%s: line %d: %w", path, line, err)
		}
		if f[row[0]] == nil {
			f[row[0]] = map[string]float64{}
		}
		f[row[0]][row[1]] = v
	}
}
